"""How a generation is spread over devices, quantised and shortened."""

from __future__ import annotations

from dataclasses import dataclass

from tensor_cast.dtypes import ACTIVATION_DTYPES, canonical_dtype
from tensor_cast.errors import ModelingError, did_you_mean
from tensor_cast.quantization import LinearScheme, attention_dtype, linear_scheme

ATTENTION_BACKENDS = ("flash_attention", "flash_attention_2", "block_sparse_attention")


@dataclass(frozen=True, kw_only=True)
class DitCache:
    """Reuse of transformer blocks between steps.

    In steps ``step_range`` (first included, last excluded) the blocks ``block_range`` run only in every
    ``step_interval``-th step; the steps between add what those blocks added the last time.
    """

    step_range: tuple[int, int]
    step_interval: int
    block_range: tuple[int, int]

    def __post_init__(self) -> None:
        for name, (first, last) in (("cache_step_range", self.step_range), ("cache_block_range", self.block_range)):
            if not 0 <= first < last:
                raise ModelingError(
                    f"{name} {first},{last} is empty or negative: give the first index and the one after the last."
                )
        if self.step_interval < 2:
            raise ModelingError(
                f"cache_step_interval must be at least 2, got {self.step_interval}: with 1 every step is computed."
            )


@dataclass(frozen=True)
class VideoParallelism:
    """Concrete sizes. Ranks are numbered with Ulysses innermost, then the two groups of CFG parallelism."""

    world: int
    ulysses: int
    cfg: int


@dataclass(frozen=True, kw_only=True)
class VideoDeployment:
    """Parallel sizes, quantisation, sparsity and caching.

    Args:
        world_size: devices in all. Over 1, ``ulysses_size``, ``cfg_parallel`` or both must say how they are used.
        ulysses_size: ranks that share out the tokens, and the heads inside attention.
        cfg_parallel: the two forwards of classifier-free guidance on two groups of ranks.
        quantize_linear: scheme of the linear layers of transformer blocks, by name (``LINEAR_SCHEMES``). Embeddings,
            modulation, the output layer, text encoders and the VAE keep ``dtype``.
        quantize_attention: ``DISABLED``, ``INT8`` or ``FP8``: both products of attention.
        attention_backend: ``flash_attention``, the device's best; ``flash_attention_2``, which newer devices run slower
            than what was made for them; or ``block_sparse_attention``, which skips the share ``attention_sparsity`` of
            blocks of ``attention_block_size`` keys in self-attention.
        dit_cache: reuse of blocks between steps.
        dtype: format of hidden states and of unquantised weights.
        vae_dtype: format of the VAE; by default ``dtype``.
        compile: fuse kernels as a serving engine's graph mode does.
        offload_inactive_expert: of two denoisers keep only the running one on the device.
        vae_tiling: decode in overlapping tiles where the pipeline usually does (HunyuanVideo, CogVideoX), which costs
            time and saves memory.
    """

    world_size: int = 1
    ulysses_size: int | None = None
    cfg_parallel: bool = False
    quantize_linear: str = "DISABLED"
    quantize_attention: str = "DISABLED"
    mxfp4_group_size: int = 32
    attention_backend: str = "flash_attention"
    attention_block_size: int = 128
    attention_sparsity: float = 0.0
    dit_cache: DitCache | None = None
    dtype: str = "bfloat16"
    vae_dtype: str | None = None
    compile: bool = False
    offload_inactive_expert: bool = False
    vae_tiling: bool = True

    def __post_init__(self) -> None:
        for name in ("world_size", "ulysses_size", "attention_block_size", "mxfp4_group_size"):
            size = getattr(self, name)
            if size is not None and (isinstance(size, bool) or not isinstance(size, int) or size < 1):
                raise ModelingError(f"{name} must be a whole number of at least 1, got {size!r}.")
        linear_scheme(self.quantize_linear)
        attention_dtype(self.quantize_attention)
        if self.attention_backend not in ATTENTION_BACKENDS:
            raise ModelingError(
                f"Unknown attention_backend {self.attention_backend!r}: one of {', '.join(ATTENTION_BACKENDS)}."
                f"{did_you_mean(self.attention_backend, ATTENTION_BACKENDS)}"
            )
        if not 0.0 <= self.attention_sparsity < 1.0:
            raise ModelingError(
                f"attention_sparsity must be at least 0 and less than 1, got {self.attention_sparsity:g}."
            )
        if self.attention_sparsity and not self.sparse:
            raise ModelingError(
                f"attention_sparsity {self.attention_sparsity:g} is given, but only the attention backend "
                "block_sparse_attention skips blocks."
            )
        for field in ("dtype", "vae_dtype"):
            given = getattr(self, field)
            name = canonical_dtype(self.dtype if given is None else given)
            if name not in ACTIVATION_DTYPES:
                raise ModelingError(f"{field} {given!r} is not one of hidden states: {', '.join(ACTIVATION_DTYPES)}.")
            if given is not None:
                object.__setattr__(self, field, name)

    @property
    def sparse(self) -> bool:
        """Whether self-attention may skip blocks."""
        return self.attention_backend == "block_sparse_attention"

    @property
    def dense_attention(self) -> str:
        """Kernel of attention that skips nothing."""
        return "flash_attention" if self.sparse else self.attention_backend

    @property
    def autoencoder_dtype(self) -> str:
        """Format of the VAE."""
        return self.vae_dtype or self.dtype

    @property
    def block_scheme(self) -> LinearScheme:
        """Quantisation of the transformer blocks' linear layers."""
        return linear_scheme(self.quantize_linear, mxfp4_group_size=self.mxfp4_group_size)

    @property
    def attention_dtype(self) -> str | None:
        """Format of quantised attention, ``None`` for ``dtype``."""
        return attention_dtype(self.quantize_attention)

    def parallelism(self, *, use_cfg: bool, heads: int) -> VideoParallelism:
        """Concrete sizes; a Ulysses size left out takes what CFG parallelism leaves.

        Raises:
            ModelingError: no strategy is given for a world over 1, or the sizes do not multiply to the world.
        """
        world = self.world_size
        if self.cfg_parallel and not use_cfg:
            raise ModelingError("--cfg-parallel splits the two forwards of --use-cfg: give both, or neither.")
        if world > 1 and self.ulysses_size is None and not self.cfg_parallel:
            raise ModelingError(f"A world size of {world} needs a strategy. {_recommended(world, use_cfg, heads)}")
        cfg = 2 if self.cfg_parallel else 1
        if world % cfg:
            raise ModelingError(f"--cfg-parallel needs an even --world-size, got {world}.")
        ulysses = self.ulysses_size or world // cfg
        if ulysses * cfg != world:
            groups = " x 2 groups of --cfg-parallel" if self.cfg_parallel else ""
            advice = f"Give --world-size {ulysses * cfg} too." if world == 1 else _recommended(world, use_cfg, heads)
            raise ModelingError(
                f"--ulysses-size {ulysses}{groups} is {ulysses * cfg} ranks, but --world-size is {world}. {advice}"
            )
        return VideoParallelism(world, ulysses, cfg)


def _recommended(world: int, use_cfg: bool, heads: int) -> str:
    """A sentence with the strategy that suits ``world`` ranks, or with the nearest worlds that one suits."""
    if (strategy := _strategy(world, use_cfg, heads)) is not None:
        return f"Recommended: {strategy}."
    suited = [ranks for ranks in range(1, 2 * heads + 1) if _strategy(ranks, use_cfg, heads) is not None]
    nearest = [max(ranks for ranks in suited if ranks < world), *[ranks for ranks in suited if ranks > world][:1]]
    return (
        f"No Ulysses size for {world} ranks divides the {heads} attention heads: the nearest --world-size with one is "
        f"{' or '.join(map(str, nearest))}."
    )


def _strategy(world: int, use_cfg: bool, heads: int) -> str | None:
    """Flags that use ``world`` ranks, CFG parallelism first: its exchange is the smaller."""
    if use_cfg and world % 2 == 0 and heads % (world // 2) == 0:
        return f"--ulysses-size {world // 2} --cfg-parallel"
    return f"--ulysses-size {world}" if heads % world == 0 else None
