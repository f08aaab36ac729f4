"""What is evaluated: a kind of simulation, a model and a device, and the flags that the user gave."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from tensor_cast.evaluation.flags import Flags, as_arguments, command_line, with_changes

Kind = Literal["text", "video", "image"]
COMMANDS: dict[Kind, str] = {"text": "text-generate", "video": "video-generate", "image": "image-generate"}


@dataclass(frozen=True)
class EvaluatedModel:
    """A model as the simulator finds it (``reference``), and the two words that name it in results."""

    reference: str
    model: str
    spec: str


@dataclass(frozen=True, kw_only=True)
class Strategy:
    """How several devices are shared out, and whose choice it was.

    ``chosen_by`` is ``user``, ``recommendation`` or ``single device``; ``accepted`` says how a recommendation was
    accepted. ``recommended`` are the flags that the tool recommended, also where the user chose otherwise;
    ``collectives`` are those that it brings.
    """

    chosen_by: Literal["user", "recommendation", "single device"]
    flags: Flags = field(default_factory=dict)
    recommended: Flags = field(default_factory=dict)
    kind: str = ""
    collectives: tuple[str, ...] = ()
    accepted: str | None = None


@dataclass(frozen=True, kw_only=True)
class EvaluationRequest:
    """One configuration.

    ``flags`` are all that the simulator receives beside the model. ``given`` and ``defaults`` are the parameters by
    name with their values: what the user said, and what the simulator takes where the user said nothing.
    """

    kind: Kind
    model: EvaluatedModel
    device: str
    device_files: tuple[Path, ...] = ()
    flags: Flags
    given: dict[str, Any]
    defaults: dict[str, Any]
    strategy: Strategy
    command: str

    @property
    def is_text(self) -> bool:
        """Whether a language model is evaluated."""
        return self.kind == "text"

    def arguments(self, changes: Flags | None = None) -> list[str]:
        """Arguments of the simulator, perhaps with some flags changed."""
        flags = with_changes(self.flags, changes or {})
        return [COMMANDS[self.kind], self.model.reference, *as_arguments(flags)]

    def simulator_command(self, changes: Flags | None = None) -> str:
        """The same as a line for a shell."""
        return command_line("msmodeling", *self.arguments(changes))

    def with_strategy(self, strategy: Strategy) -> EvaluationRequest:
        """The request with the strategy's flags among its own."""
        return replace(self, strategy=strategy, flags=with_changes(self.flags, strategy.flags))
