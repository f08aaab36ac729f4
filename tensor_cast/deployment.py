"""How the work is spread over devices and quantised."""

from __future__ import annotations

from dataclasses import dataclass

from tensor_cast.checks import flag, text, whole
from tensor_cast.dtypes import ACTIVATION_DTYPES, canonical_dtype
from tensor_cast.errors import ModelingError, did_you_mean
from tensor_cast.parallelism import Parallelism, dcp_size, dense_sizes, expert_sizes, module_tp_size
from tensor_cast.quantization import LinearScheme, attention_dtype, linear_scheme

CHECKPOINT = "CHECKPOINT"
"""``--quantize-linear-action`` that takes each module's quantisation from the model's config."""
ENGINES = ("none", "vllm", "vllm-ascend", "sglang", "trtllm", "mindie")
"""Serving engines whose own time a step is known; ``none`` adds nothing."""
EXECUTIONS = ("graph", "eager")
"""How kernels are launched: as a captured graph, or one by one by the host."""


def flag_of(parameter: str) -> str:
    """The flag that sets a parameter of a deployment or a workload: ``tp_size`` -> ``--tp-size``."""
    name = {"quantize_linear": "quantize_linear_action"}.get(parameter, parameter)
    return f"--{name.replace('_', '-')}"


@dataclass(frozen=True, kw_only=True)
class Deployment:
    """Parallel sizes, quantisation and fusions. A size of ``None`` follows from the others.

    Args:
        world_size: devices in all. Over 1, at least one of ``tp_size``, ``dp_size``, ``pp_size``, ``ep_size`` must say
            how they are used.
        tp_size, dp_size, pp_size: tensor, data and pipeline parallelism of the dense part; their product is the world.
        ep_size, moe_tp_size, moe_dp_size: expert, tensor and data parallelism of routed experts; times ``pp_size``
            they make the world.
        mlp_tp_size, o_proj_tp_size, lmhead_tp_size: tensor parallelism of dense MLPs, of attention's output
            projection and of the output head where it differs from ``tp_size``.
        dcp_size: decode context parallelism: ranks of a TP group that share out the tokens of the KV cache.
        enable_sequence_parallel: norms and residuals on a share of the tokens: reduce-scatter and all-gather
            replace the all-reduce.
        enable_shared_expert_tp: shared experts sharded over the TP group although routed experts are expert parallel.
        enable_redundant_experts: one spare copy of an expert on every expert-parallel rank.
        expert_skew: tokens that the busiest expert-parallel rank computes, over the mean of all ranks; 1 is balanced.
            It is what an expert-parallel load balancer reports and lowers (max over mean; deepseek-ai/EPLB): spare
            copies of experts act on the time through it. ``None``: what the engine's experience says of so many ranks.
        shared_expert_ranks: expert-parallel ranks that hold the shared experts and no routed ones, which the other
            ranks share out; 0: every rank computes the shared experts of its own tokens.
        vision_tp_size: tensor parallelism of a vision encoder; the default 1 shares out whole images instead.
        quantize_linear: scheme of linear layers, by name (``LINEAR_SCHEMES``), or ``CHECKPOINT`` for what the model's
            own ``quantization_config`` says of each module.
        quantize_non_expert_linear: scheme of all linear layers but routed experts; ``None``: the same.
        quantize_lmhead: whether the output head is quantised too.
        quantize_attention: ``DISABLED``, ``INT8`` or ``FP8``: KV cache and attention products.
        dtype: format of hidden states and of unquantised weights; ``None``: the model's own.
        compile: fuse kernels as a serving engine's graph mode does.
        block_size: tokens of a KV cache block; sequences occupy whole blocks.
        engine: serving engine whose own time is added to each step (``ENGINES``).
        execution: ``graph``, or ``eager`` where the host launches kernels one by one and may not keep up.
    """

    world_size: int = 1
    tp_size: int | None = None
    dp_size: int | None = None
    pp_size: int | None = None
    ep_size: int | None = None
    moe_tp_size: int | None = None
    moe_dp_size: int | None = None
    mlp_tp_size: int | None = None
    o_proj_tp_size: int | None = None
    lmhead_tp_size: int | None = None
    dcp_size: int | None = None
    enable_sequence_parallel: bool = False
    enable_shared_expert_tp: bool = False
    enable_redundant_experts: bool = False
    expert_skew: float | None = None
    shared_expert_ranks: int = 0
    vision_tp_size: int | None = None
    quantize_linear: str = "DISABLED"
    quantize_non_expert_linear: str | None = None
    quantize_lmhead: bool = False
    quantize_attention: str = "DISABLED"
    mxfp4_group_size: int = 32
    dtype: str | None = None
    compile: bool = False
    enable_multistream: bool = False
    enable_matmul_allreduce: bool = False
    enable_dispatch_ffn_combine: bool = False
    block_size: int = 1
    engine: str = "none"
    execution: str = "graph"

    def __post_init__(self) -> None:
        self._check_types()
        self._check_experts()
        self._check_quantization()
        self._check_execution()
        self._check_dtype()
        self._check_fusions()

    def _check_types(self) -> None:
        """Sizes are whole numbers, switches booleans, names text; NumPy's numbers and booleans become Python's."""
        sizes = [name for name in self.__dataclass_fields__ if name.endswith("_size")]
        for name in sizes:
            if getattr(self, name) is not None or self.__dataclass_fields__[name].default is not None:
                object.__setattr__(self, name, whole(getattr(self, name), name, minimum=1))
        for name, field in self.__dataclass_fields__.items():
            if field.type == "bool":
                object.__setattr__(self, name, flag(getattr(self, name), name))
            elif "str" in field.type and (getattr(self, name) is not None or field.default is not None):
                text(getattr(self, name), name)

    def _check_experts(self) -> None:
        skew = 1.0 if self.expert_skew is None else self.expert_skew
        if not (isinstance(skew, int | float) and 1.0 <= skew < float("inf")):
            raise ModelingError(f"expert_skew is a ratio to the mean, at least 1, got {self.expert_skew!r}.")
        ranks = whole(self.shared_expert_ranks, "shared_expert_ranks", minimum=0)
        object.__setattr__(self, "shared_expert_ranks", ranks)
        if ranks and (self.enable_shared_expert_tp or self.enable_dispatch_ffn_combine):
            raise ModelingError(
                "shared_expert_ranks puts shared experts on ranks of their own: it excludes enable_shared_expert_tp "
                "and enable_dispatch_ffn_combine."
            )

    def _check_quantization(self) -> None:
        """Look every scheme up, which refuses unknown ones."""
        if not self.uses_checkpoint:
            linear_scheme(self.quantize_linear)
        if self.quantize_non_expert_linear is not None:
            linear_scheme(self.quantize_non_expert_linear)
        attention_dtype(self.quantize_attention)

    def _check_execution(self) -> None:
        for value, name, known in ((self.engine, "engine", ENGINES), (self.execution, "execution", EXECUTIONS)):
            if value not in known:
                raise ModelingError(
                    f"Unknown {name} {value!r}: one of {', '.join(known)}.{did_you_mean(str(value), known)}"
                )

    def _check_dtype(self) -> None:
        if self.dtype is None:
            return
        name = canonical_dtype(self.dtype)
        if name not in ACTIVATION_DTYPES:
            raise ModelingError(f"dtype {self.dtype!r} is not one of hidden states: {', '.join(ACTIVATION_DTYPES)}.")
        object.__setattr__(self, "dtype", name)

    def _check_fusions(self) -> None:
        fusions = ("enable_multistream", "enable_matmul_allreduce", "enable_dispatch_ffn_combine")
        asked = [name for name in fusions if getattr(self, name)]
        if asked and not self.compile:
            raise ModelingError(f"{asked[0]} is a fusion of compiled graphs: it needs compile (--compile).")

    @property
    def uses_checkpoint(self) -> bool:
        """Whether the checkpoint's own quantisation is asked for."""
        return self.quantize_linear.upper() == CHECKPOINT

    @property
    def expert_scheme(self) -> LinearScheme:
        """Quantisation of routed experts; none under ``CHECKPOINT``, where each layer brings its own."""
        name = "DISABLED" if self.uses_checkpoint else self.quantize_linear
        return linear_scheme(name, mxfp4_group_size=self.mxfp4_group_size)

    @property
    def dense_scheme(self) -> LinearScheme:
        """Quantisation of every other linear layer; none under ``CHECKPOINT`` unless it is given apart."""
        default = "DISABLED" if self.uses_checkpoint else self.quantize_linear
        return linear_scheme(self.quantize_non_expert_linear or default, mxfp4_group_size=self.mxfp4_group_size)

    @property
    def head_scheme(self) -> LinearScheme:
        """Quantisation of the output head."""
        return self.dense_scheme if self.quantize_lmhead else linear_scheme("DISABLED")

    @property
    def attention_dtype(self) -> str | None:
        """Format of a quantised KV cache, ``None`` for the model's dtype."""
        return attention_dtype(self.quantize_attention)

    def parallelism(self, *, has_experts: bool) -> Parallelism:
        """Concrete sizes, with what was left out derived.

        Raises:
            ModelingError: no strategy is given for a world over 1, the sizes do not multiply to the world, or an
                expert size is given for a model without experts.
        """
        world = self.world_size
        strategy = (self.tp_size, self.dp_size, self.pp_size, self.ep_size, self.moe_tp_size, self.moe_dp_size)
        if world > 1 and all(size is None for size in strategy):
            raise ModelingError(
                f"A world size of {world} needs a strategy: give --tp-size, --dp-size, --pp-size or --ep-size."
            )
        pp = self.pp_size or 1
        tp, dp = dense_sizes(world, self.tp_size, self.dp_size, pp)
        stage = tp * dp
        ep, moe_tp, moe_dp = 1, tp, dp
        if has_experts:
            ep, moe_tp, moe_dp = expert_sizes(stage, self.ep_size, self.moe_tp_size, self.moe_dp_size)
        else:
            self._refuse_experts()
        return Parallelism(
            world=world,
            tp=tp,
            dp=dp,
            pp=pp,
            ep=ep,
            moe_tp=moe_tp,
            moe_dp=moe_dp,
            mlp_tp=module_tp_size("--mlp-tp-size", self.mlp_tp_size, tp, stage),
            o_proj_tp=module_tp_size("--o-proj-tp-size", self.o_proj_tp_size, tp, stage, at_least_tp=True),
            lmhead_tp=module_tp_size("--lmhead-tp-size", self.lmhead_tp_size, tp, stage),
            dcp=dcp_size(self.dcp_size, tp),
        )

    def _refuse_experts(self) -> None:
        """Refuse what is said of experts, for a model that has none."""
        for name in ("ep_size", "moe_tp_size", "moe_dp_size"):
            size = getattr(self, name)
            if size not in (None, 1):
                raise ModelingError(f"{flag_of(name)} {size} is given, but the model has no experts to share out.")
        switches = ("enable_redundant_experts", "enable_shared_expert_tp", "enable_dispatch_ffn_combine")
        asked = [name for name in (*switches, "shared_expert_ranks") if getattr(self, name)]
        if self.expert_skew not in (None, 1.0):
            asked.append("expert_skew")
        if asked:
            raise ModelingError(f"{asked[0]} is given, but the model has no experts.")
