"""Number formats: their names, aliases and sizes."""

from __future__ import annotations

from tensor_cast.errors import ModelingError, did_you_mean

BYTES: dict[str, float] = {
    "float32": 4.0,
    "bfloat16": 2.0,
    "float16": 2.0,
    "fp8": 1.0,
    "int8": 1.0,
    "int4": 0.5,
    "fp4": 0.5,
    "int32": 4.0,
    "int64": 8.0,
    "bool": 1.0,
    # Scale of a microscaling block: E8M0, one byte (OCP Microscaling Formats v1.0, table 1).
    "e8m0": 1.0,
}
"""Bytes of one element."""

ALIASES: dict[str, str] = {
    "bf16": "bfloat16",
    "fp16": "float16",
    "half": "float16",
    "fp32": "float32",
    "float": "float32",
    "float8_e4m3fn": "fp8",
    "float8_e5m2": "fp8",
}

ACTIVATION_DTYPES = ("bfloat16", "float16", "float32")
"""Formats that hidden states may have (``--dtype``)."""


def canonical_dtype(name: str) -> str:
    """The project's name of a dtype, whatever of its usual spellings is given (``torch.bfloat16``, ``bf16``).

    Raises:
        ModelingError: no dtype has this name.
    """
    bare = name.strip().lower().removeprefix("torch.")
    bare = ALIASES.get(bare, bare)
    if bare not in BYTES:
        raise ModelingError(f"Unknown dtype {name!r}: one of {', '.join(BYTES)}.{did_you_mean(name, BYTES)}")
    return bare


def dtype_bytes(name: str) -> float:
    """Bytes of one element of a canonical dtype."""
    return BYTES[name]
