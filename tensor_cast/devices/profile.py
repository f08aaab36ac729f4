"""What the project knows of an accelerator: rates, memory, links, and what its kernels reach of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Literal

from tensor_cast.errors import ModelingError

Topology = Literal["switched", "full_mesh"]
KernelClass = Literal["matmul", "grouped_matmul", "attention_prefill", "attention_decode", "vector"]
KERNEL_CLASSES: tuple[KernelClass, ...] = (
    "matmul",
    "grouped_matmul",
    "attention_prefill",
    "attention_decode",
    "vector",
)


@dataclass(frozen=True)
class LinkLevel:
    """One level of the interconnect: ``size`` neighbours that reach each other over the same kind of link.

    ``bandwidth`` is what one device sends to all its neighbours of the level together, in bytes/s and one direction.
    A switch gives all of it to any group. In a full mesh of ``size`` devices it is the sum of ``size - 1`` links, and
    a group of ``g`` uses ``g - 1`` of them. Where ``shares_ports``, a device reaches the level through the ports of the
    level inside it (a second tier of the same switches), so that it cannot send on both at once.
    """

    name: str
    size: int
    topology: Topology
    bandwidth: float
    latency_s: float
    shares_ports: bool = False

    def group_bandwidth(self, group_size: int) -> float:
        """Bytes/s that one of ``group_size`` members sends to the others, one direction."""
        if self.topology == "full_mesh":
            return self.bandwidth * (group_size - 1) / (self.size - 1)
        return self.bandwidth


@dataclass(frozen=True)
class Interconnect:
    """A grid of levels, outermost first: A3 is 48 servers x 8 NPUs x 2 dies."""

    levels: tuple[LinkLevel, ...]

    @property
    def device_count(self) -> int:
        """Devices that the grid joins."""
        count = 1
        for level in self.levels:
            count *= level.size
        return count

    @property
    def shape(self) -> tuple[int, ...]:
        """Sizes of the levels, outermost first."""
        return tuple(level.size for level in self.levels)


@dataclass(frozen=True)
class KernelCost:
    """What kernels of one class reach of the device's peaks, and what each costs beside.

    ``matrix_efficiency``, ``memory_efficiency`` and ``vector_efficiency`` are fractions of the peak that large work
    reaches; ``fixed_s`` is added to every kernel. ``tiles`` are the output tiles (rows, columns) that the kernel can
    choose from, one on a matrix core at a time; a wave of tiles costs ``wave_s`` beside its work, each step of 64 along
    the inner dimension ``step_s``. ``overlap`` is the share of the shorter parts that hides behind the longest: 1 is a
    roofline, 0 a sum. Attention computes heads of multiples of ``head_step`` channels and pads others.

    A vector kernel costs ``start_s`` for each core that it starts, one a row, or one for each ``share_bytes`` of its
    operands where they are not 0. Where ``start_s`` is given, a core moves no more than its share of the bandwidth.
    """

    matrix_efficiency: float
    memory_efficiency: float
    vector_efficiency: float
    fixed_s: float
    tiles: tuple[tuple[int, int], ...] = ((128, 128),)
    wave_s: float = 0.0
    step_s: float = 0.0
    start_s: float = 0.0
    overlap: float = 1.0
    head_step: int = 1
    share_bytes: float = 0.0


@dataclass(frozen=True)
class CollectiveCost:
    """What collectives reach of the links, and what they cost beside.

    ``link_efficiency`` is the fraction of a link's bandwidth that large messages reach; ``fixed_s`` starts a
    collective, and each hand-over from one peer to the next costs ``peer_s``. ``one_shot_s`` starts an all-reduce in
    which every rank sends all it has to all others at once, as engines' own kernels do with small messages; 0 says that
    there is no such kernel. A collective of which each rank's part (the message over the ranks) is larger than
    ``direct_bytes``, or ``direct_reduce_bytes`` if it adds, is not one kernel but a schedule that is laid out first, in
    ``schedule_s``.
    """

    link_efficiency: float
    fixed_s: float
    peer_s: float = 0.0
    one_shot_s: float = 0.0
    direct_bytes: float = 0.0
    direct_reduce_bytes: float = 0.0
    schedule_s: float = 0.0


@dataclass(frozen=True)
class DeviceProfile:
    """One accelerator as the user's process sees it: a card, or one die where each die is a device.

    Rates are dense peaks: ``matrix_flops`` and ``vector_flops`` in FLOP/s by dtype (a multiply-add is two),
    ``memory_bandwidth`` in bytes/s, ``memory_bytes`` and ``cache_bytes`` in bytes. ``sources`` names, for every
    figure by its dotted path (``matrix_flops.int8``, ``interconnect.server.bandwidth``), where it comes from; a figure
    that a rule derived starts with ``assumed``.

    ``kernels`` has the cost of every kernel class, and of a class in one matrix dtype (``matmul_fp8``), of attention
    without a causal mask (``attention_prefill_full``; ``attention_prefill_fa2`` by FlashAttention-2 where newer kernels
    are faster) or with a recurrent state (``attention_prefill_state``, ``attention_decode_state``), of convolutions
    (``matmul_conv``) and of flat vector kernels (``vector_flat``) where that differs. Between a kernel and the next of
    a graph the device idles for ``launch_gap_s``; in eager mode the host needs ``host_launch_s`` for each launch.
    """

    name: str
    vendor: str
    family: str
    description: str
    matrix_flops: dict[str, float]
    vector_flops: dict[str, float]
    memory_bytes: float
    memory_bandwidth: float
    matrix_cores: int
    vector_cores: int
    cache_bytes: float
    interconnect: Interconnect
    kernels: dict[str, KernelCost]
    collective: CollectiveCost
    launch_gap_s: float = 0.0
    host_launch_s: float = 0.0
    sources: dict[str, str] = field(default_factory=dict)

    all_device_profiles: ClassVar[Mapping[str, DeviceProfile]]
    """Every profile by name, read when asked for; ``tensor_cast.devices.registry`` sets it."""

    def matrix_rate(self, dtype: str) -> float:
        """Peak FLOP/s of matrix work in ``dtype``.

        Raises:
            ModelingError: the device has no such rate.
        """
        try:
            return self.matrix_flops[dtype]
        except KeyError:
            raise ModelingError(
                f"{self.name} has no {dtype} matrix rate; it has {', '.join(self.matrix_flops)}. "
                "Choose another quantisation or device."
            ) from None

    def vector_rate(self, dtype: str) -> float:
        """Peak FLOP/s of vector work in ``dtype``; formats without a rate of their own are computed in float32."""
        return self.vector_flops.get(dtype, self.vector_flops["float32"])

    def kernel_key(self, kind: KernelClass, *variants: str) -> str:
        """Key in ``kernels`` of a class: with the first of ``variants`` (a dtype, ``full``) that has a cost apart."""
        apart = (f"{kind}_{variant}" for variant in variants)
        return next((key for key in apart if key in self.kernels), kind)

    def kernel_cost(self, kind: KernelClass, *variants: str) -> KernelCost:
        """Cost of a class of kernels, found in the same order."""
        return self.kernels[self.kernel_key(kind, *variants)]
