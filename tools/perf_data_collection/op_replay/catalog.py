"""Which operators can be replayed: the ``<Kernel>_run.py`` files beside this module."""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Sequence
from pathlib import Path

from tensor_cast.errors import ModelingError, did_you_mean
from tools.perf_data_collection.op_replay.kernel import Kernel

DIRECTORY = Path(__file__).parent
_SCRIPT = "_run"


def operators(directory: Path = DIRECTORY) -> tuple[str, ...]:
    """Names of the operators that have a script, sorted by the script's name."""
    return tuple(path.stem.removesuffix(_SCRIPT) for path in sorted(directory.glob(f"*{_SCRIPT}.py")))


def script_name(operator: str) -> str:
    """The file that replays an operator."""
    return f"{operator}{_SCRIPT}.py"


def selected_operators(given: Iterable[str], known: Sequence[str]) -> tuple[str, ...]:
    """Operators named as Op, Op_run, Op_run.py or Op.csv, each once, in the order given.

    Raises:
        ModelingError: one of them has no script.
    """
    chosen: dict[str, None] = {}
    for text in given:
        name = text.strip().removesuffix(".py").removesuffix(".csv").removesuffix(_SCRIPT)
        if name not in known:
            raise ModelingError(
                f"Operator {text!r} cannot be replayed.{did_you_mean(name, known)} Available: {', '.join(known)}."
            )
        chosen[name] = None
    return tuple(chosen)


def load(operator: str) -> Kernel:
    """The kernel that a script describes.

    Raises:
        ModelingError: torch is not installed.
    """
    try:
        module = importlib.import_module(f"{__package__}.{operator}{_SCRIPT}")
    except ModuleNotFoundError as error:
        if error.name == "torch":
            raise no_torch() from None
        raise
    kernel = module.KERNEL
    assert isinstance(kernel, Kernel)
    return kernel


def no_torch() -> ModelingError:
    """The sentence for a machine without PyTorch."""
    return ModelingError("Replay needs PyTorch: pip install torch.", exit_status=1)
