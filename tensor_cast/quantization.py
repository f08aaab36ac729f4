"""Quantisation of linear layers and of attention: what is stored, what is multiplied, what it costs beside."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass, replace
from typing import Literal

from tensor_cast.errors import ModelingError, did_you_mean
from tensor_cast.quantity import ceil_div

Granularity = Literal["none", "tensor", "channel", "block", "group"]


@dataclass(frozen=True)
class LinearScheme:
    """How a linear layer is quantised.

    ``weight_dtype`` and ``activation_dtype`` of ``None`` mean the model's own dtype. ``dynamic`` activations are
    measured and quantised by a kernel before the product (one scale a token); static ones are only scaled.
    ``compute_dtype`` of ``None`` means that the product runs in the model's dtype. ``zero_point_dtype`` is that of a
    zero point beside each scale (asymmetric integers). ``tensor_scales`` are float32 scales of a whole matrix beside
    the others: of NVFP4's second level, of static activations.
    """

    name: str
    weight_dtype: str | None = None
    activation_dtype: str | None = None
    compute_dtype: str | None = None
    dynamic: bool = False
    granularity: Granularity = "none"
    group_size: int = 0
    scale_dtype: str = "float32"
    zero_point_dtype: str | None = None
    tensor_scales: int = 0

    @property
    def quantizes_weight(self) -> bool:
        """Whether weights are stored in another format than the model's."""
        return self.weight_dtype is not None

    @property
    def quantizes_activation(self) -> bool:
        """Whether the product's left operand is quantised."""
        return self.activation_dtype is not None

    def scale_count(self, k: int, n: int) -> float:
        """Scales stored beside a (k, n) weight.

        A tensor scheme has one; a channel scheme one an output column; a block scheme one a ``group_size`` square (the
        last may be partly filled); a group scheme one a ``group_size`` run of a column.
        """
        match self.granularity:
            case "none":
                return 0.0
            case "tensor":
                return 1.0
            case "channel":
                return float(n)
            case "block":
                return float(ceil_div(k, self.group_size) * ceil_div(n, self.group_size))
            case "group":
                return float(ceil_div(k, self.group_size) * n)


# Scales of int8 schemes are one float32 an output channel (npu_quant_matmul's `scale`); FP8 follows the checkpoints of
# DeepSeek-V3 (weight_block_size 128 x 128, float32); MXFP4 the OCP Microscaling Formats v1.0 (an E8M0 byte for 32).
LINEAR_SCHEMES: dict[str, LinearScheme] = {
    scheme.name: scheme
    for scheme in (
        LinearScheme("DISABLED"),
        LinearScheme("W8A16_STATIC", weight_dtype="int8", granularity="channel"),
        LinearScheme("W8A8_STATIC", "int8", "int8", "int8", granularity="channel"),
        LinearScheme("W4A8_STATIC", "int4", "int8", "int8", granularity="channel"),
        LinearScheme("W8A16_DYNAMIC", weight_dtype="int8", granularity="channel"),
        LinearScheme("W8A8_DYNAMIC", "int8", "int8", "int8", dynamic=True, granularity="channel"),
        LinearScheme("W4A8_DYNAMIC", "int4", "int8", "int8", dynamic=True, granularity="channel"),
        LinearScheme("FP8", "fp8", "fp8", "fp8", dynamic=True, granularity="block", group_size=128),
        LinearScheme(
            "MXFP4", "fp4", "fp4", "fp4", dynamic=True, granularity="group", group_size=32, scale_dtype="e8m0"
        ),
    )
}

EIGHT_BIT_SCHEMES = {"int8": "W8A8_DYNAMIC", "fp8": "FP8"}
"""Schemes that advice suggests, by the dtype that a device needs a matrix rate for, the preferred first."""

ATTENTION_DTYPES: dict[str, str | None] = {"DISABLED": None, "INT8": "int8", "FP8": "fp8"}
"""``--quantize-attention-action`` to the dtype of the KV cache and of the attention products."""


def linear_scheme(name: str, *, mxfp4_group_size: int = 32) -> LinearScheme:
    """The scheme called ``name``.

    Raises:
        ModelingError: there is none.
    """
    try:
        scheme = LINEAR_SCHEMES[name.upper()]
    except KeyError:
        raise ModelingError(
            f"Unknown quantisation {name!r} for linear layers: one of {', '.join(LINEAR_SCHEMES)}."
            f"{did_you_mean(name, LINEAR_SCHEMES)}"
        ) from None
    if scheme.granularity == "group" and scheme.group_size != mxfp4_group_size:
        return replace(scheme, group_size=mxfp4_group_size)
    return scheme


def eight_bit_schemes(dtypes: Container[str]) -> list[str]:
    """8-bit schemes for a device with matrix rates in ``dtypes``, the preferred first."""
    return [scheme for dtype, scheme in EIGHT_BIT_SCHEMES.items() if dtype in dtypes]


def attention_dtype(name: str) -> str | None:
    """Dtype that attention is quantised to, ``None`` when it is not.

    Raises:
        ModelingError: no such attention quantisation.
    """
    try:
        return ATTENTION_DTYPES[name.upper()]
    except KeyError:
        raise ModelingError(
            f"Unknown quantisation {name!r} for attention: one of {', '.join(ATTENTION_DTYPES)}."
        ) from None
