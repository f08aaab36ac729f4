"""The kernel vocabulary: what one kernel launch computes, reads and writes.

Every op states its input and output tensors, its matrix FLOPs with the dtype that they run in, its vector FLOPs, and
its category. A multiply-add is two FLOPs. Nothing here knows a device.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import ClassVar, Literal

from tensor_cast.dtypes import dtype_bytes
from tensor_cast.quantity import Quantity

Role = Literal["activation", "weight", "cache", "index"]
Category = Literal["FlashAttention", "MatMul", "Vector", "Comm"]
CATEGORIES: tuple[Category, ...] = ("FlashAttention", "MatMul", "Vector", "Comm")
CollectiveKind = Literal["all_reduce", "all_gather", "reduce_scatter", "all_to_all", "p2p"]


@dataclass(frozen=True, eq=False)
class Tensor:
    """An operand. Two tensors are the same only if they are the same object, so that a tied weight counts once.

    ``role`` says what keeps it in memory: a weight and a cache always, an activation from its producer to its last use.
    ``name`` of a weight names the part of the model that it belongs to. A view shares the memory of its ``base``.
    """

    shape: tuple[Quantity, ...]
    dtype: str
    role: Role = "activation"
    name: str = ""
    base: Tensor | None = None

    def view(self, *shape: Quantity) -> Tensor:
        """Part of this tensor, or all of it in another shape, without memory of its own."""
        return Tensor(shape, self.dtype, self.role, self.name, self.base or self)

    @cached_property
    def elements(self) -> Quantity:
        """Number of elements."""
        count: Quantity = 1.0
        for dimension in self.shape:
            count = count * dimension
        return count

    @property
    def bytes(self) -> Quantity:
        """Size in bytes."""
        return self.elements * dtype_bytes(self.dtype)


def total_bytes(tensors: Iterable[Tensor]) -> Quantity:
    """Bytes of all ``tensors`` together."""
    total: Quantity = 0.0
    for tensor in tensors:
        total = total + tensor.bytes
    return total


@dataclass(frozen=True, eq=False, kw_only=True)
class Op:
    """One kernel.

    ``name`` is stable across versions: reports, traces and the database refer to it. ``part`` says where in the model
    the kernel runs (``attention.qkv``). ``matrix_dtype`` is the format that matrix FLOPs run in.
    """

    name: str
    part: str
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    matrix_dtype: str = "bfloat16"

    category: ClassVar[Category] = "Vector"

    def within(self, prefix: str) -> Op:
        """The same kernel in the part ``prefix`` of a larger model."""
        return replace(self, part=f"{prefix}.{self.part}")

    @property
    def matrix_flops(self) -> Quantity:
        """FLOPs of the matrix units, in ``matrix_dtype``."""
        return 0.0

    @property
    def vector_flops(self) -> Quantity:
        """FLOPs of the vector units, in float32."""
        return 0.0

    @property
    def read_bytes(self) -> Quantity:
        """Bytes that must come from memory."""
        return total_bytes(self.inputs)

    @property
    def written_bytes(self) -> Quantity:
        """Bytes that must go to memory."""
        return total_bytes(self.outputs)

    @property
    def bytes(self) -> Quantity:
        """Memory traffic: read and written bytes."""
        return self.read_bytes + self.written_bytes


@dataclass(frozen=True, eq=False, kw_only=True)
class MatMul(Op):
    """``batch`` products of (m, k) by (k, n). ``epilogue_flops`` are vector FLOPs fused into the kernel."""

    m: Quantity
    k: Quantity
    n: Quantity
    batch: Quantity = 1.0
    epilogue_flops: Quantity = 0.0

    category: ClassVar[Category] = "MatMul"

    @property
    def matrix_flops(self) -> Quantity:
        return 2.0 * self.batch * self.m * self.k * self.n

    @property
    def vector_flops(self) -> Quantity:
        return self.epilogue_flops


@dataclass(frozen=True, eq=False, kw_only=True)
class GroupedMatMul(Op):
    """Rows sorted by group, each group multiplied with its own (k, n) matrix: the experts of one device.

    Of ``groups`` matrices ``active_groups`` have at least one of the ``m`` rows; only those are read.
    """

    m: Quantity
    k: Quantity
    n: Quantity
    groups: Quantity
    active_groups: Quantity
    epilogue_flops: Quantity = 0.0

    category: ClassVar[Category] = "MatMul"

    @property
    def matrix_flops(self) -> Quantity:
        return 2.0 * self.m * self.k * self.n

    @property
    def vector_flops(self) -> Quantity:
        return self.epilogue_flops

    @property
    def read_bytes(self) -> Quantity:
        weights = total_bytes(t for t in self.inputs if t.role == "weight")
        others = total_bytes(t for t in self.inputs if t.role != "weight")
        return others + weights * (self.active_groups / self.groups)


@dataclass(frozen=True, eq=False, kw_only=True)
class Attention(Op):
    """Softmax attention over a KV cache.

    ``pairs`` is the number of (query token, key token) pairs of the whole batch that the mask leaves, for one head.
    ``cache_bytes`` is what is read of the cache: ``inputs`` names the cache tensor for its shape only. Without
    ``causal`` every query sees every key, as in encoders and diffusion transformers. ``diffusion`` pipelines bring
    kernels of their own.
    """

    batch: Quantity
    query_length: Quantity
    kv_length: Quantity
    heads: Quantity
    kv_heads: Quantity
    qk_dim: Quantity
    v_dim: Quantity
    pairs: Quantity
    cache_bytes: Quantity
    decode: bool
    causal: bool = True
    diffusion: bool = False

    category: ClassVar[Category] = "FlashAttention"

    # Max, subtract, exponential, sum and rescale of an online softmax, once a score (FlashAttention-2,
    # arXiv 2307.08691, algorithm 1); an exponential is counted as one FLOP.
    SOFTMAX_FLOPS_PER_SCORE: ClassVar[float] = 5.0

    @property
    def matrix_flops(self) -> Quantity:
        return 2.0 * self.pairs * self.heads * (self.qk_dim + self.v_dim)

    @property
    def vector_flops(self) -> Quantity:
        return self.SOFTMAX_FLOPS_PER_SCORE * self.pairs * self.heads

    @property
    def read_bytes(self) -> Quantity:
        return total_bytes(t for t in self.inputs if t.role != "cache") + self.cache_bytes


@dataclass(frozen=True, eq=False, kw_only=True)
class StateAttention(Attention):
    """A pass over the new tokens that reads and writes a recurrent state instead of a cache that grows.

    ``matrix_work`` and ``vector_work`` are the FLOPs of either unit; ``cache_bytes`` is the state that is read.
    """

    matrix_work: Quantity
    vector_work: Quantity

    @property
    def matrix_flops(self) -> Quantity:
        return self.matrix_work

    @property
    def vector_flops(self) -> Quantity:
        return self.vector_work


@dataclass(frozen=True, eq=False, kw_only=True)
class Elementwise(Op):
    """Norms, activations, quantisation, rotary embedding, copies: ``flops`` of vector work over streamed operands.

    ``untouched`` operands are named for their shape but not streamed (a cache of which only a few slots are written).
    A ``flat`` kernel sees its operands as one run of elements (an addition, a copy), not as rows that it reduces,
    scales or rotates one by one.
    """

    flops: Quantity = 0.0
    flat: bool = False
    untouched: tuple[Tensor, ...] = field(default=())

    @property
    def vector_flops(self) -> Quantity:
        return self.flops


@dataclass(frozen=True, eq=False, kw_only=True)
class Gather(Op):
    """Rows of a table picked by index: an embedding. Only the picked rows are read."""

    @property
    def read_bytes(self) -> Quantity:
        indices = total_bytes(t for t in self.inputs if t.role == "index")
        return indices + total_bytes(self.outputs)


@dataclass(frozen=True, eq=False, kw_only=True)
class Collective(Op):
    """Communication among ``group_size`` ranks that are ``stride`` apart.

    ``message_bytes`` is the size of the whole tensor of the operation: what each rank holds before an all-reduce,
    a reduce-scatter or an all-to-all (its own share of the latter included), what each holds after an all-gather, what
    one rank sends to the next in a p2p.
    """

    kind: CollectiveKind
    message_bytes: Quantity
    group_size: int
    stride: int = 1

    category: ClassVar[Category] = "Comm"

    @property
    def read_bytes(self) -> Quantity:
        return 0.0

    @property
    def written_bytes(self) -> Quantity:
        return 0.0

    @property
    def sent_bytes(self) -> Quantity:
        """Bytes that each rank puts on its links, by the bandwidth-optimal (ring) algorithm."""
        share = (self.group_size - 1) / self.group_size
        match self.kind:
            case "all_reduce":
                return 2.0 * share * self.message_bytes
            case "p2p":
                return self.message_bytes
            case _:
                return share * self.message_bytes


@dataclass(frozen=True, eq=False, kw_only=True)
class Overlapped(Op):
    """Compute and communication fused in one kernel, which hides the shorter under the longer."""

    compute: tuple[Op, ...]
    collectives: tuple[Collective, ...]

    category: ClassVar[Category] = "MatMul"

    def within(self, prefix: str) -> Op:
        return replace(
            self,
            part=f"{prefix}.{self.part}",
            compute=tuple(op.within(prefix) for op in self.compute),
            collectives=tuple(replace(op, part=f"{prefix}.{op.part}") for op in self.collectives),
        )

    @property
    def matrix_flops(self) -> Quantity:
        return sum((op.matrix_flops for op in self.compute), start=0.0)

    @property
    def vector_flops(self) -> Quantity:
        return sum((op.vector_flops for op in self.compute), start=0.0)

    @property
    def read_bytes(self) -> Quantity:
        return sum((op.read_bytes for op in self.compute), start=0.0)

    @property
    def written_bytes(self) -> Quantity:
        return sum((op.written_bytes for op in self.compute), start=0.0)
