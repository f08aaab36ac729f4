"""One case after another: allocate, check the result, time, write."""

from __future__ import annotations

import statistics
import textwrap
from collections.abc import Callable, Mapping
from typing import Any

import torch

from tensor_cast.errors import ModelingError
from tensor_cast.performance_model.profiling_database.communication import COMMUNICATION_FILES
from tools.perf_data_collection.comm_bench.accelerator import Accelerator
from tools.perf_data_collection.comm_bench.operations import Buffers, allocate, fill, launcher, wrong_elements
from tools.perf_data_collection.comm_bench.plan import Case, Settings, named_ranks
from tools.perf_data_collection.comm_bench.session import Session

ATTEMPTS = 3
"""Times that a case is measured at most while durations are missing."""
_AGAIN, _ENOUGH = "again", "enough"
_STOP = "stop"

Write = Callable[[Case, float], None]


def measure_all(
    cases: list[Case],
    groups: Mapping[int, Any],
    settings: Settings,
    session: Session,
    accelerator: Accelerator,
    write: Write,
) -> list[str]:
    """Measure every case in order, all ranks together; returns what failed, the same list on every rank.

    A case that fails (no memory, a wrong result, durations that stay missing) is left out and the next one runs. The
    leader calls ``write``; when that raises, all ranks stop.

    Raises:
        ModelingError: a rank does not answer, a collective breaks, or a row cannot be written.
    """
    failures = []
    for number, case in enumerate(cases):
        topic = f"case {number}, {case}"
        failure: str | None = None
        if session.rank < case.num_devices:
            failure = _measure(case, groups[case.num_devices], settings, session, accelerator, topic, write)
        if session.is_leader:
            session.decide(f"{topic}: outcome", failure or "")
        # Ranks outside the group wait for all that the group may wait for: memory, attempts, results.
        outcome = session.hear_leader(f"{topic}: outcome", patience=ATTEMPTS + 3)
        if outcome == _STOP:
            raise ModelingError("Rank 0 stopped the run; it says why.", exit_status=1)
        if outcome:
            failures.append(f"{case}: {outcome}")
    return failures


def _measure(
    case: Case,
    group: Any,
    settings: Settings,
    session: Session,
    accelerator: Accelerator,
    topic: str,
    write: Write,
) -> str | None:
    """What went wrong, as the leader sees it."""
    buffers, problem = _buffers(case, settings, accelerator)
    if reason := _verdict(session, f"{topic}: memory", case, problem):
        return reason
    assert buffers is not None
    launch = launcher(case.op, buffers, group)
    kernel = COMMUNICATION_FILES[case.op].removesuffix(".csv")
    durations: list[float] = []
    with session.time_limit(str(case)) as restart, session.failing(str(case)):
        fill(case.op, buffers, session.rank, case.num_devices)
        launch()
        accelerator.synchronize()
        wrong = wrong_elements(case.op, buffers, session.rank, case.num_devices)
        # Reduced in place again and again, values other than zero would grow beyond what the dtype holds.
        buffers.source.zero_()
        for _ in range(settings.warmup):
            restart()
            launch()
        accelerator.synchronize()
    if reason := _verdict(session, f"{topic}: result", case, f"{wrong} wrong elements" if wrong else ""):
        return reason
    for attempt in range(ATTEMPTS):
        with session.time_limit(str(case)) as restart, session.failing(str(case)):
            durations += accelerator.durations_us(
                launch, settings.iterations, kernel, before_each=restart, records=session.is_leader
            )
        if session.is_leader:
            is_enough = len(durations) >= settings.iterations
            session.decide(f"{topic}: attempt {attempt}", _ENOUGH if is_enough else _AGAIN)
        if session.hear_leader(f"{topic}: attempt {attempt}") == _ENOUGH:
            break
    else:
        return f"the profiler reported {len(durations)} of {settings.iterations} {kernel} kernels in {ATTEMPTS} tries"
    if session.is_leader:
        try:
            write(case, statistics.median(durations))
        except ModelingError:
            session.decide(f"{topic}: outcome", _STOP)
            raise
    return None


def _buffers(case: Case, settings: Settings, accelerator: Accelerator) -> tuple[Buffers | None, str]:
    dtype = getattr(torch, settings.dtype.removeprefix("torch."))
    try:
        return allocate(case.op, case.message_bytes, case.num_devices, dtype, accelerator.device), ""
    except RuntimeError as error:
        return None, f"no memory ({textwrap.shorten(str(error), 200, placeholder=' …')})"


def _verdict(session: Session, topic: str, case: Case, problem: str) -> str:
    """What the group's ranks report, decided by the leader; empty when all is well."""
    session.say(topic, problem)
    if session.is_leader:
        reports = session.hear(topic, range(case.num_devices))
        ranks: dict[str, list[int]] = {}
        for rank, report in enumerate(reports):
            if report:
                ranks.setdefault(report, []).append(rank)
        session.decide(topic, "; ".join(f"{report} on {named_ranks(where)}" for report, where in ranks.items()))
    return session.hear_leader(topic)
