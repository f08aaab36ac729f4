"""The simulator's own flags inside ``msmodeling evaluate``: the same parser, so that none can be forgotten."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from tensor_cast.command_line import CommandParser
from tensor_cast.evaluation.flags import FlagValue
from tensor_cast.evaluation.request import COMMANDS, Kind

_MODULES: dict[Kind, str] = {
    "text": "cli.inference.text_generate",
    "video": "cli.inference.video_generate",
    "image": "cli.inference.image_generate",
}
_NOT_BORROWED = frozenset(
    {
        "help",
        "model",
        "model_id",
        "json",
        "chrome_trace_file",
        "dump_input_shapes",
        "dump_op_bound_results",
        "log_level",
    }
)
"""What an evaluation gives itself: the model's two words, and where output goes."""


@dataclass(frozen=True)
class _Typed:
    """A value that was checked, with the text that a person typed."""

    text: str
    value: Any


def borrow_flags(parser: CommandParser, kind: Kind) -> None:
    """Add the simulator's flags to ``parser``, each absent from the namespace unless it is given."""
    for group in simulator_parser(kind)._action_groups:
        borrowed = [action for action in group._group_actions if action.dest not in _NOT_BORROWED]
        if borrowed:
            own = parser.add_argument_group(group.title, group.description)
            for action in borrowed:
                action.default = argparse.SUPPRESS
                if action.choices is None:
                    action.type = _keep_text(action.type)
                own._add_action(action)


def given_flags(
    arguments: argparse.Namespace, kind: Kind
) -> tuple[dict[str, FlagValue], dict[str, Any], dict[str, Any]]:
    """The given flags as they are passed on; the same as values by name; and the defaults of those not given."""
    flags: dict[str, FlagValue] = {}
    given: dict[str, Any] = {}
    defaults: dict[str, Any] = {}
    for action in simulator_parser(kind)._actions:
        if action.dest in _NOT_BORROWED:
            continue
        if not hasattr(arguments, action.dest):
            defaults.setdefault(action.dest, _plain(action.default))
            continue
        value = getattr(arguments, action.dest)
        flags[_flag(action)] = _as_flag_value(value)
        given[action.dest] = _plain(value)
    return flags, given, {name: value for name, value in defaults.items() if name not in given}


def simulator_parser(kind: Kind) -> CommandParser:
    """The parser of the simulator's command, made anew."""
    parent = CommandParser(prog="msmodeling").add_subparsers(prog="msmodeling")
    import_module(_MODULES[kind]).add_parser(parent)
    parser: CommandParser = parent.choices[COMMANDS[kind]]
    return parser


def _keep_text(kind: Any) -> Callable[[str], _Typed]:
    def parse(text: str) -> _Typed:
        value = text if kind is None else kind(text)
        return _Typed(value if isinstance(value, str) else text.strip(), value)

    return parse


def _flag(action: argparse.Action) -> str:
    return next(option for option in action.option_strings if option.startswith("--"))


def _as_flag_value(value: Any) -> FlagValue:
    if isinstance(value, bool):
        return value
    if isinstance(value, (list, tuple)):
        return [_text(item) for item in value]
    return _text(value)


def _text(value: Any) -> str:
    return value.text if isinstance(value, _Typed) else str(value)


def _plain(value: Any) -> Any:
    """What JSON takes."""
    if isinstance(value, _Typed):
        value = value.value
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return value if value is None or isinstance(value, (bool, int, float, str)) else str(value)
