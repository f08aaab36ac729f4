"""What stands out in a simulation, by stated rules; each finding names the variants of the request worth running.

A rule is a threshold on a figure of the simulation's document. Sentences are templates, so that a report can say them
in its language; ``RULES`` in the guide lists them with their thresholds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from tensor_cast.deployment import flag_of
from tensor_cast.devices.profile import DeviceProfile
from tensor_cast.evaluation.flags import FlagValue
from tensor_cast.evaluation.request import EvaluationRequest
from tensor_cast.evaluation.summary import Shares, shares
from tensor_cast.quantization import EIGHT_BIT_SCHEMES, eight_bit_schemes
from tensor_cast.units import byte_size

Level = Literal["bad", "note", "good"]

WEIGHTS_BOUND = 0.25
CACHE_BOUND = 0.25
MATRIX_BOUND = 0.5
START_BOUND = 0.2
IDLE_SHARE = 0.2
VECTOR_SHARE = 0.3
COMM_SHARE = 0.2
WAIT_SHARE = 0.2
ATTENTION_SHARE = 0.5
FREE_MEMORY = 0.5
SPARSITY = "0.5"


@dataclass(frozen=True)
class Variant:
    """Flags that differ from the request's. ``changes_result``: the model then computes something else."""

    changes: dict[str, FlagValue]
    changes_result: bool = False


@dataclass(frozen=True)
class Finding:
    """One rule that applied, the figures of its sentence, and what to try."""

    rule: str
    level: Level
    values: dict[str, Any]
    variants: tuple[Variant, ...] = field(default=())


SENTENCES = {
    "does-not-fit": "It does not fit: the fullest device needs {needed} and has {device}.",
    "weights-bound": "Reading weights from memory bounds {share:.0%} of the time: the sequences of a batch share that "
    "cost, and narrower weights lower it.",
    "cache-bound": "Reading the KV cache bounds {share:.0%} of the time: it grows with every sequence and its context; "
    "a narrower cache lowers it.",
    "matrix-bound": "The matrix units bound {share:.0%} of the time: a format with a higher rate, or more devices, "
    "help.",
    "start-bound": "Costs of starting kernels bound {share:.0%} of the time: fewer, fused kernels or more work a "
    "kernel help.",
    "idle": "In {share:.0%} of the time no kernel runs: the device waits for launches and for the host; fewer, fused "
    "kernels or more work a step help.",
    "vector-share": "Vector kernels take {share:.0%} of the time and are not fused with their neighbours.",
    "comm-share": "Communication takes {share:.0%} of the time, most of it {longest}.",
    "pipeline-wait": "In {share:.0%} of the time pipeline stages wait for one another: tensor parallelism in place of "
    "stages leaves fewer to wait for.",
    "attention-share": "Attention takes {share:.0%} of the time and grows with the square of the tokens.",
    "cfg-forwards": "The two forwards of classifier-free guidance run one after the other on all {world} devices.",
    "free-memory": "{share:.0%} of the device's memory stays free: it has room for more sequences.",
    "balanced": "No single bound or category stands out.",
}
"""A template of each rule's sentence."""


@dataclass(frozen=True)
class _Case:
    document: Mapping[str, Any]
    request: EvaluationRequest
    device: DeviceProfile
    shares: Shares

    def flag(self, name: str) -> FlagValue | None:
        """The flag as the request has it."""
        return self.request.flags.get(name)

    @property
    def decode(self) -> bool:
        return bool(self.document["workload"].get("decode"))

    @property
    def fits(self) -> bool:
        return bool(self.document["memory"]["fits"])

    @property
    def world(self) -> int:
        return int(self.document["deployment"]["parallel"]["world"])

    def more_queries(self) -> list[Variant]:
        """Twice the batch, for a decode."""
        number = self.flag("--num-queries")
        return [Variant({"--num-queries": str(2 * int(number))})] if self.decode and isinstance(number, str) else []

    def eight_bit_weights(self) -> list[Variant]:
        """8-bit linear layers, where none are quantised and the device has a rate."""
        if self.flag("--quantize-linear-action") != "DISABLED":
            return []
        schemes = eight_bit_schemes(self.device.matrix_flops)
        return [Variant({"--quantize-linear-action": scheme}) for scheme in schemes[:1]]

    def eight_bit_attention(self) -> list[Variant]:
        """8-bit attention, where it is not quantised."""
        if self.flag("--quantize-attention-action") not in (None, "DISABLED"):
            return []
        dtypes = [dtype for dtype in EIGHT_BIT_SCHEMES if dtype in self.device.matrix_flops]
        return [Variant({"--quantize-attention-action": dtype.upper()}) for dtype in dtypes[:1]]

    def compiled(self) -> list[Variant]:
        """Fused kernels, where they are not."""
        return [] if self.flag("--compile") else [Variant({"--compile": True})]

    def more_devices(self) -> list[Variant]:
        """Twice the devices, sharing out each layer, or each sample's tokens."""
        world = 2 * self.world
        if world > self.device.interconnect.device_count:
            return []
        parallel = self.document["deployment"]["parallel"]
        inner = "tp" if self.request.is_text else "ulysses"
        changes: dict[str, FlagValue] = {
            "--world-size": str(world),
            f"--{inner}-size": str(2 * int(parallel[inner])),
        }
        if self.request.is_text and int(parallel["dp"]) > 1:
            changes["--dp-size"] = str(parallel["dp"])
        return [Variant(changes)]


_WAITING = ("Comm", "wait")
"""Category and bound of what stages of a pipeline wait for one another, which is no collective."""

_Rule = Callable[[_Case], "Iterator[Finding]"]


def find(document: Mapping[str, Any], request: EvaluationRequest, device: DeviceProfile) -> list[Finding]:
    """Every rule that applies to a simulation's document, the gravest first; one that says so when none does."""
    case = _Case(document, request, device, shares(document))
    found = [finding for rule in _RULES for finding in rule(case)]
    return found or [Finding("balanced", "good", {})]


def _does_not_fit(case: _Case) -> Iterator[Finding]:
    if case.fits:
        return
    memory = case.document["memory"]
    remedies = [
        Variant({flag_of(name): value if isinstance(value, bool) else str(value) for name, value in change.items()})
        for change in (remedy["changes"] for remedy in case.document.get("would_fit", ()))
    ]
    needed = memory["device_bytes"] - memory["available_bytes"]
    values = {"needed": byte_size(needed), "device": byte_size(memory["device_bytes"])}
    yield Finding("does-not-fit", "bad", values, tuple(remedies))


def _weights_bound(case: _Case) -> Iterator[Finding]:
    share = case.shares.by_both.get(("MatMul", "memory"), 0.0)
    if share >= WEIGHTS_BOUND:
        variants = (*case.more_queries(), *case.eight_bit_weights())
        yield Finding("weights-bound", "note", {"share": share}, variants)


def _cache_bound(case: _Case) -> Iterator[Finding]:
    share = case.shares.by_both.get(("FlashAttention", "memory"), 0.0)
    if case.request.is_text and share >= CACHE_BOUND:
        yield Finding("cache-bound", "note", {"share": share}, tuple(case.eight_bit_attention()))


def _matrix_bound(case: _Case) -> Iterator[Finding]:
    share = case.shares.by_bound.get("matrix", 0.0)
    if share >= MATRIX_BOUND:
        variants = (*case.eight_bit_weights(), *case.more_devices())
        yield Finding("matrix-bound", "note", {"share": share}, variants)


def _start_bound(case: _Case) -> Iterator[Finding]:
    share = case.shares.by_bound.get("fixed", 0.0)
    if share >= START_BOUND:
        yield Finding("start-bound", "note", {"share": share}, (*case.compiled(), *case.more_queries()))


def _idle(case: _Case) -> Iterator[Finding]:
    if case.shares.idle >= IDLE_SHARE:
        yield Finding("idle", "note", {"share": case.shares.idle}, (*case.compiled(), *case.more_queries()))


def _vector_share(case: _Case) -> Iterator[Finding]:
    share = case.shares.by_category["Vector"]
    if share >= VECTOR_SHARE and (variants := case.compiled()):
        yield Finding("vector-share", "note", {"share": share}, tuple(variants))


def _comm_share(case: _Case) -> Iterator[Finding]:
    share = case.shares.by_category["Comm"] - case.shares.by_both.get(_WAITING, 0.0)
    if share < COMM_SHARE:
        return
    collectives = (op for op in case.document["ops"] if op["category"] == "Comm" and op["bound"] != "wait")
    longest = max(collectives, key=lambda op: float(op["total_s"]))
    variants = []
    parallel = case.document["deployment"]["parallel"]
    tp = int(parallel.get("tp", 1))
    if tp % 2 == 0:
        variants.append(Variant({"--tp-size": str(tp // 2), "--dp-size": str(2 * int(parallel["dp"]))}))
        if not case.decode and not case.flag("--enable-sequence-parallel"):
            variants.append(Variant({"--enable-sequence-parallel": True}))
    yield Finding(
        "comm-share", "note", {"share": share, "longest": f"{longest['name']} ({longest['part']})"}, tuple(variants)
    )


def _pipeline_wait(case: _Case) -> Iterator[Finding]:
    share = case.shares.by_both.get(_WAITING, 0.0)
    if share < WAIT_SHARE:
        return
    parallel = case.document["deployment"]["parallel"]
    stages, tp = int(parallel["pp"]), int(parallel["tp"])
    fewer = Variant({"--pp-size": str(stages // 2), "--tp-size": str(2 * tp)})
    yield Finding("pipeline-wait", "note", {"share": share}, (fewer,) if stages % 2 == 0 else ())


def _attention_share(case: _Case) -> Iterator[Finding]:
    share = case.shares.by_category["FlashAttention"]
    if case.request.is_text or share < ATTENTION_SHARE:
        return
    variants = case.eight_bit_attention()
    if case.flag("--attention-backend") is None:
        sparse: dict[str, FlagValue] = {
            "--attention-backend": "block_sparse_attention",
            "--attention-sparsity": SPARSITY,
        }
        variants.append(Variant(sparse, changes_result=True))
    yield Finding("attention-share", "note", {"share": share}, tuple(variants))


def _cfg_forwards(case: _Case) -> Iterator[Finding]:
    if case.request.is_text or not case.flag("--use-cfg") or case.flag("--cfg-parallel") or case.world % 2:
        return
    changes: dict[str, FlagValue] = {"--cfg-parallel": True, "--ulysses-size": str(case.world // 2)}
    yield Finding("cfg-forwards", "note", {"world": case.world}, (Variant(changes),))


def _free_memory(case: _Case) -> Iterator[Finding]:
    memory = case.document["memory"]
    share = memory["available_bytes"] / memory["device_bytes"]
    if case.fits and case.decode and share >= FREE_MEMORY:
        yield Finding("free-memory", "good", {"share": share}, tuple(case.more_queries()))


_RULES: tuple[_Rule, ...] = (
    _does_not_fit,
    _weights_bound,
    _cache_bound,
    _matrix_bound,
    _attention_share,
    _comm_share,
    _pipeline_wait,
    _cfg_forwards,
    _start_bound,
    _idle,
    _vector_share,
    _free_memory,
)
