"""How the work is spread over devices and quantised."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from tensor_cast.checks import flag, text, whole
from tensor_cast.dtypes import ACTIVATION_DTYPES, canonical_dtype
from tensor_cast.errors import ModelingError, did_you_mean
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


@dataclass(frozen=True)
class RankGroup:
    """Ranks that communicate: ``size`` of them, ``stride`` apart in the rank order."""

    size: int
    stride: int = 1


@dataclass(frozen=True)
class Parallelism:
    """Concrete parallel sizes. Ranks are numbered with tensor parallelism innermost, then data, then pipeline.

    ``ep`` x ``moe_tp`` x ``moe_dp`` share out a pipeline stage's ranks for routed experts, expert-parallel
    ranks ``moe_tp`` apart.
    """

    world: int
    tp: int
    dp: int
    pp: int
    ep: int
    moe_tp: int
    moe_dp: int
    mlp_tp: int
    o_proj_tp: int
    lmhead_tp: int
    dcp: int

    @property
    def stage(self) -> int:
        """Ranks of one pipeline stage."""
        return self.tp * self.dp

    @property
    def moe_group(self) -> int:
        """Ranks that hold one replica of the routed experts."""
        return self.ep * self.moe_tp


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
        sizes = [name for name in self.__dataclass_fields__ if name.endswith("_size")]
        for name in sizes:
            if getattr(self, name) is not None or self.__dataclass_fields__[name].default is not None:
                object.__setattr__(self, name, whole(getattr(self, name), name, minimum=1))
        for name, field in self.__dataclass_fields__.items():
            if field.type == "bool":
                object.__setattr__(self, name, flag(getattr(self, name), name))
            elif "str" in field.type and (getattr(self, name) is not None or field.default is not None):
                text(getattr(self, name), name)
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
        if not self.uses_checkpoint:
            linear_scheme(self.quantize_linear)
        if self.quantize_non_expert_linear is not None:
            linear_scheme(self.quantize_non_expert_linear)
        attention_dtype(self.quantize_attention)
        for value, name, known in ((self.engine, "engine", ENGINES), (self.execution, "execution", EXECUTIONS)):
            if value not in known:
                raise ModelingError(
                    f"Unknown {name} {value!r}: one of {', '.join(known)}.{did_you_mean(str(value), known)}"
                )
        if self.dtype is not None:
            name = canonical_dtype(self.dtype)
            if name not in ACTIVATION_DTYPES:
                raise ModelingError(
                    f"dtype {self.dtype!r} is not one of hidden states: {', '.join(ACTIVATION_DTYPES)}."
                )
            object.__setattr__(self, "dtype", name)
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
        tp, dp = _dense_sizes(world, self.tp_size, self.dp_size, pp)
        stage = tp * dp
        ep, moe_tp, moe_dp = 1, tp, dp
        if has_experts:
            ep, moe_tp, moe_dp = _expert_sizes(stage, self.ep_size, self.moe_tp_size, self.moe_dp_size)
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
            mlp_tp=_block_size("--mlp-tp-size", self.mlp_tp_size, tp, stage),
            o_proj_tp=_block_size("--o-proj-tp-size", self.o_proj_tp_size, tp, stage, at_least_tp=True),
            lmhead_tp=_block_size("--lmhead-tp-size", self.lmhead_tp_size, tp, stage),
            dcp=_dcp_size(self.dcp_size, tp),
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


def _dense_sizes(world: int, tp: int | None, dp: int | None, pp: int) -> tuple[int, int]:
    """Tensor and data parallel sizes; the one left out takes what the others leave, both left out data parallelism."""
    sizes = {"--tp-size": tp, "--dp-size": dp, "--pp-size": pp if pp > 1 else None}
    rest = _left_of(world, f"--world-size {world}", sizes, all_known=tp is not None and dp is not None)
    if tp is None:
        return (1, rest) if dp is None else (rest, dp)
    return tp, dp or rest


def _expert_sizes(stage: int, ep: int | None, moe_tp: int | None, moe_dp: int | None) -> tuple[int, int, int]:
    """Expert, expert-tensor and expert-data parallel sizes of a pipeline stage's ``stage`` ranks.

    Left out: expert parallelism is 1, replicas are 1, and tensor parallelism takes the rest.
    """
    sizes = {"--ep-size": ep, "--moe-tp-size": moe_tp, "--moe-dp-size": moe_dp}
    ranks = f"the {stage} ranks of a pipeline stage (tp x dp)"
    rest = _left_of(stage, ranks, sizes, all_known=None not in sizes.values())
    if moe_tp is None:
        return ep or 1, rest, moe_dp or 1
    if ep is None:
        return rest, moe_tp, moe_dp or 1
    return ep, moe_tp, moe_dp or rest


def _left_of(total: int, what: str, sizes: dict[str, int | None], *, all_known: bool) -> int:
    """What the ``sizes`` that are given, by flag, leave of ``total`` ranks, called ``what`` in errors.

    Raises:
        ModelingError: they do not divide it, or, all known, do not make it.
    """
    given = {flag: size for flag, size in sizes.items() if size is not None}
    product = prod(given.values())
    rest, over = divmod(total, product)
    if over or not rest or (all_known and rest > 1):
        text = " x ".join(f"{flag} {size}" for flag, size in given.items())
        equals = f" = {product}" if len(given) > 1 else ""
        verb = "is not" if all_known else "does not divide"
        raise ModelingError(f"{text}{equals} {verb} {what}, which parallel sizes must multiply to.")
    return rest


def _block_size(flag: str, size: int | None, tp: int, stage: int, *, at_least_tp: bool = False) -> int:
    """A block's own tensor-parallel size: it nests with ``tp`` and fits in the stage."""
    if size is None:
        return tp
    smaller, larger = sorted((size, tp))
    if larger % smaller:
        raise ModelingError(f"{flag} {size} and --tp-size {tp} do not nest: one must be a multiple of the other.")
    if stage % size:
        raise ModelingError(f"{flag} {size} does not divide the {stage} ranks of a pipeline stage.")
    if at_least_tp and size < tp:
        raise ModelingError(f"{flag} {size} is less than --tp-size {tp}, over which the attention heads are split.")
    return size


def _dcp_size(size: int | None, tp: int) -> int:
    size = size or 1
    if tp % size:
        raise ModelingError(f"--dcp-size {size} does not divide --tp-size {tp}, whose ranks it shares the cache among.")
    return size
