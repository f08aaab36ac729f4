"""The processes of a run: meeting, agreeing on settings, telling each other how a case went, never waiting for ever.

Everything is said over the key-value store of the rendezvous: it works before the first collective and after a failed
one, and it leaves no kernels in the profile that a barrier of the backend would.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Any

import torch.distributed

from tensor_cast.errors import ModelingError
from tools.perf_data_collection.comm_bench.plan import named_ranks

LEADER = 0
_dist: Any = torch.distributed
_VARIABLES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")
_START = "torchrun --nproc_per_node=16 tools/perf_data_collection/comm_bench/generate_comm_microbench.py"
_PARTING_S = 5
"""Longest wait for others to have heard why a run ends; one that has ended itself never says so."""
_GRACE_S = 30
"""How much later than the watchdog the backend's own limit ends a collective: the watchdog says which one it was."""


class Session:
    """This process's place among all of a run, and the store that they share.

    Raises:
        ModelingError: not started by torchrun, or the other processes do not come.
    """

    def __init__(self, timeout_s: int, environment: Mapping[str, str] = os.environ) -> None:
        missing = [name for name in _VARIABLES if name not in environment]
        if missing:
            raise ModelingError(
                f"Start this with torchrun, which sets {', '.join(missing)}: {_START} --database-path ./hccl_data"
            )
        self.rank = int(environment["RANK"])
        self.world_size = int(environment["WORLD_SIZE"])
        self.local_rank = int(environment["LOCAL_RANK"])
        self.local_world_size = int(environment.get("LOCAL_WORLD_SIZE", "1"))
        self.timeout_s = timeout_s
        where = f"{environment['MASTER_ADDR']}:{environment['MASTER_PORT']}"
        try:
            self._store, _, _ = next(_dist.rendezvous("env://", timeout=timedelta(seconds=timeout_s)))
        except (RuntimeError, ValueError) as error:
            raise ModelingError(
                f"The {self.world_size} processes did not all reach {where} within {timeout_s} s "
                f"({_first_line(error)}): start the same command on every node, with the same NNODES, NPROC, "
                "MASTER_ADDR and MASTER_PORT and a NODE_RANK of its own, and check that this address is reachable.",
                exit_status=1,
            ) from None

    @property
    def is_leader(self) -> bool:
        """Whether this process writes and decides."""
        return self.rank == LEADER

    @property
    def speaks_for_node(self) -> bool:
        """Whether this process prints what all of its machine would."""
        return self.local_rank == 0

    def agree(self, settings: Mapping[str, Any]) -> None:
        """Compare ``settings`` with those of all processes; call it once on each.

        Raises:
            ModelingError: they differ, or a process says nothing.
        """
        own = {**settings, "world_size": self.world_size, "local_world_size": self.local_world_size}
        self._say(f"settings/{self.rank}", json.dumps([socket.gethostname(), own]))
        if self.is_leader:
            said = [json.loads(text) for text in self.hear("settings", range(self.world_size))]
            self._say("settings", _disagreement(said))
        verdict = self.hear_leader("settings")
        if verdict:
            raise ModelingError(verdict)

    def join(self, backend: str) -> None:
        """Create the process group of all ranks.

        Raises:
            ModelingError: the backend cannot connect them.
        """
        limit = timedelta(seconds=self.timeout_s + _GRACE_S)
        with self.time_limit("connecting all ranks"), self.failing("connecting all ranks"):
            _dist.init_process_group(
                backend,
                store=_dist.PrefixStore("collectives", self._store),
                rank=self.rank,
                world_size=self.world_size,
                timeout=limit,
            )

    def groups(self, sizes: Iterable[int]) -> dict[int, Any]:
        """A process group of the first n ranks for each size, created in the same order everywhere."""
        limit = timedelta(seconds=self.timeout_s + _GRACE_S)
        with self.time_limit("creating groups"), self.failing("creating groups"):
            return {size: _dist.new_group(list(range(size)), timeout=limit) for size in sizes}

    def say(self, topic: str, text: str = "") -> None:
        """Tell all what this rank has to say about ``topic``; once a topic."""
        self._say(f"{topic}/{self.rank}", text)

    def hear(self, topic: str, ranks: Iterable[int]) -> list[str]:
        """What each of ``ranks`` says about ``topic``, waiting for it.

        Raises:
            ModelingError: some say nothing in time; they are named.
        """
        keys = {rank: f"{topic}/{rank}" for rank in ranks}
        try:
            self._store.wait(list(keys.values()), timedelta(seconds=self.timeout_s))
        except RuntimeError:
            silent = [rank for rank, key in keys.items() if not self._heard(key)]
            raise ModelingError(
                f"Nothing was heard of {named_ranks(silent)} for {self.timeout_s} s "
                f"({topic}): see what they printed, and start the same command on every node. A slow machine may need "
                "a longer --timeout-s.",
                exit_status=1,
            ) from None
        return [self._store.get(key).decode() for key in keys.values()]

    def decide(self, topic: str, text: str = "") -> None:
        """Tell all what the leader decided about ``topic``; the leader alone calls this."""
        self._say(topic, text)

    def hear_leader(self, topic: str, patience: int = 1) -> str:
        """What the leader decided, waiting ``patience`` times the limit for it.

        Raises:
            ModelingError: the leader says nothing in time.
        """
        limit = self.timeout_s * patience
        try:
            self._store.wait([topic], timedelta(seconds=limit))
            return str(self._store.get(topic).decode())
        except RuntimeError:
            raise ModelingError(
                f"Nothing was heard of rank 0 for {limit} s ({topic}): see what it printed.", exit_status=1
            ) from None

    def leave(self) -> None:
        """End a run that went through: the store lives in one process, which must be the last to go."""
        self.say("leave")
        if self.is_leader:
            self.hear("leave", range(self.world_size))
        _dist.destroy_process_group()

    def part(self) -> None:
        """End a run early: once the others have heard the leader's last word, or cannot be expected to any more."""
        with suppress(RuntimeError):
            self.say("parting")
            if self.is_leader:
                keys = [f"parting/{rank}" for rank in range(self.world_size)]
                self._store.wait(keys, timedelta(seconds=min(_PARTING_S, self.timeout_s)))

    @contextmanager
    def time_limit(self, what: str) -> Iterator[Callable[[], None]]:
        """End this process with a sentence when ``what`` takes longer than the limit.

        Yields a function that starts the limit anew, for each of several calls. A collective that hangs cannot be
        interrupted, so the process ends, and torchrun ends the others of this machine.
        """
        watchdog = _Watchdog(self.timeout_s, f"rank {self.rank} ({socket.gethostname()}): {what}")
        try:
            yield watchdog.restart
        finally:
            watchdog.stop()

    @contextmanager
    def failing(self, what: str) -> Iterator[None]:
        """Say in one sentence what the backend's error ended."""
        try:
            yield
        except RuntimeError as error:
            raise ModelingError(
                f"Rank {self.rank} ({socket.gethostname()}), {what}: {_first_line(error)}", exit_status=1
            ) from None

    def _say(self, key: str, text: str) -> None:
        self._store.set(key, text)

    def _heard(self, key: str) -> bool:
        try:
            return bool(self._store.check([key]))
        except RuntimeError:
            return False


class _Watchdog:
    """A thread that ends the process unless it is restarted or stopped in time.

    Restarting only moves the deadline: waking the thread at each call would disturb what is timed.
    """

    def __init__(self, timeout_s: float, what: str) -> None:
        self._timeout_s = timeout_s
        self._what = what
        self._deadline = time.monotonic() + timeout_s
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def restart(self) -> None:
        self._deadline = time.monotonic() + self._timeout_s

    def stop(self) -> None:
        self._is_over.set()
        self._thread.join()

    def _watch(self) -> None:
        while (left := self._deadline - time.monotonic()) > 0.0:
            if self._is_over.wait(left):
                return
        print(
            f"error: {self._what} was not done within {self._timeout_s:g} s: another rank hangs or has ended, or the "
            "links need a longer --timeout-s.",
            file=sys.stderr,
            flush=True,
        )
        os._exit(1)


def _disagreement(said: list[tuple[str, dict[str, Any]]]) -> str:
    """A sentence about ranks whose settings are not those of rank 0; empty if all agree."""
    host, reference = said[LEADER]
    different: dict[tuple[str, str], list[int]] = {}
    for rank, (other, settings) in enumerate(said):
        names = [name for name in reference if settings.get(name) != reference[name]]
        if names:
            changes = [f"{_flag(name)} {_text(settings.get(name))} ({_text(reference[name])})" for name in names]
            different.setdefault((other, ", ".join(changes)), []).append(rank)
    sentences = [f"on {other} {named_ranks(ranks)} has {what}" for (other, what), ranks in different.items()]
    if not sentences:
        return ""
    return (
        f"The settings are not those of rank 0 on {host}, given in brackets: {'; '.join(sentences)}. "
        "Start the same command on every node."
    )


def _flag(name: str) -> str:
    if name.endswith("world_size"):
        return {"world_size": "processes in all", "local_world_size": "processes on the node"}[name]
    return f"--{name.replace('_', '-')}"


def _text(value: object) -> str:
    return " ".join(map(str, value)) if isinstance(value, list) else str(value)


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")[:300]
