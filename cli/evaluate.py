"""``msmodeling evaluate``: run a simulation on the record, and write a report that others can check."""

from __future__ import annotations

import argparse
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cli.evaluation_flags import borrow_flags, given_flags
from cli.evaluation_questions import ask, ask_yes_or_no
from tensor_cast.command_line import CommandParser, UsageError, choice, given_path, whole_number
from tensor_cast.evaluation.language import LANGUAGES
from tensor_cast.evaluation.request import EvaluatedModel, EvaluationRequest, Kind, Strategy

if TYPE_CHECKING:
    from tensor_cast.devices.profile import DeviceProfile
    from tensor_cast.devices.registry import DeviceRegistry
    from tensor_cast.evaluation.flags import Flags

    Subparsers = argparse._SubParsersAction[CommandParser]

_EXAMPLES = """\
examples:
  a decode step, on the record:
    msmodeling evaluate text --model qwen3 --spec 32b --device ATLAS_800_A2_376T_64G --decode \\
        --num-queries 64 --query-length 1 --context-length 4096 --quantize-linear-action W8A8_DYNAMIC \\
        --world-size 4 --tp-size 4
  the generation of a video:
    msmodeling evaluate video --model wan2.2 --spec t2v-14b --device ATLAS_800_A2_376T_64G \\
        --resolution 480x832 --frame-num 81 --quantize-linear-action DISABLED --world-size 4 --ulysses-size 4
  the report of an evaluation once more, in Chinese:
    msmodeling evaluate report results/qwen3_32b_a2-376t-64g_w4_tp4_dp1_ep1 --language zh
"""
_SUMMARIES: dict[Kind, str] = {
    "text": "a language model's prefill or decode",
    "video": "the generation of a video",
    "image": "the generation of an image",
}
_REQUIRED: dict[Kind, tuple[tuple[str, ...], ...]] = {
    "text": (("--num-queries",), ("--query-length",), ("--quantize-linear-action",)),
    "video": (("--resolution", "--height", "--width"), ("--frame-num",), ("--quantize-linear-action",)),
    "image": (("--resolution", "--height", "--width"), ("--quantize-linear-action",)),
}
"""Flags without a default: the first of each group, or all its others."""
_STRATEGY_FLAGS: dict[bool, tuple[str, ...]] = {
    True: ("--tp-size", "--dp-size", "--pp-size", "--ep-size", "--moe-tp-size", "--moe-dp-size"),
    False: ("--ulysses-size", "--cfg-parallel"),
}


class _KindParser(CommandParser):
    """Refuses unknown flags itself: its own are the ones to compare them with."""

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> tuple[Any, list[str]]:
        found, unknown = super().parse_known_args(args, namespace)
        if unknown:
            self.refuse(unknown)
        return found, unknown


def add_parser(subparsers: Subparsers) -> None:
    """Add ``evaluate`` and its kinds to the command line."""
    parser = subparsers.add_parser(
        "evaluate",
        help="run a simulation on the record and write its report",
        description="Run a simulation on the record: every iteration in a fresh process, with its configuration,\n"
        "logs, summary, and a report in Markdown and HTML.",
        epilog=_EXAMPLES,
    )
    kinds = parser.add_subparsers(
        dest="evaluate_command", metavar="{text,video,image,report}", parser_class=_KindParser
    )
    for kind, summary in _SUMMARIES.items():
        one = kinds.add_parser(kind, help=summary, description=f"Evaluate {summary}, on the record.")
        _add_evaluation_arguments(one)
        borrow_flags(one, kind)
    again = kinds.add_parser("report", help="write the report of recorded results again")
    again.add_argument("results", type=given_path, metavar="RESULTS_DIR", help="directory that an evaluation wrote")
    _add_language(again)


def _add_evaluation_arguments(parser: CommandParser) -> None:
    group = parser.add_argument_group("what is evaluated")
    group.add_argument("--model", metavar="NAME", help="a model's family such as wan2.2, an id, or a path")
    group.add_argument("--spec", metavar="NAME", help="which model of the family, such as t2v-14b; an id needs none")
    group = parser.add_argument_group("recording")
    group.add_argument(
        "--iterations", type=whole_number(1), default=2, metavar="N", help="runs that must agree (default: 2)"
    )
    group.add_argument(
        "--output-dir",
        type=given_path,
        default=Path("results"),
        metavar="DIR",
        help="where results go (default: results)",
    )
    group.add_argument("--overwrite", action="store_true", help="replace results of the same name (default: …_run2)")
    group.add_argument(
        "--accept-recommended", action="store_true", help="accept the recommended parallel strategy without asking"
    )
    group.add_argument("--no-advice", action="store_true", help="do not run variants for advice")
    _add_language(group)


def _add_language(group: argparse._ArgumentGroup | argparse.ArgumentParser) -> None:
    group.add_argument(
        "--language", type=choice(LANGUAGES), default="en", metavar="{en,zh}", help="of the report (default: en)"
    )


def run(arguments: argparse.Namespace) -> int:
    """Evaluate what the flags describe; 0 when done, 1 when iterations disagree.

    Raises:
        ModelingError: something is missing or wrong, the simulator refuses, or results cannot be written.
    """
    if arguments.evaluate_command is None:
        raise UsageError("Name what to evaluate: text, video or image; or report.")
    if arguments.evaluate_command == "report":
        return _report_again(arguments)
    from cli.evaluation_progress import ConsoleProgress
    from tensor_cast.evaluation.results import PAGE, REPORT
    from tensor_cast.evaluation.run import Options, evaluate

    request = _request(arguments, arguments.evaluate_command)
    options = Options(
        root=arguments.output_dir,
        iterations=arguments.iterations,
        overwrite=arguments.overwrite,
        language=arguments.language,
        with_advice=not arguments.no_advice,
    )
    with ConsoleProgress() as progress:
        results = evaluate(request, options, progress)
    print(f"results  {results.directory}\nreport   {results.directory / REPORT}\n         {results.directory / PAGE}")
    for error in results.summary["errors"]:
        print(f"error: the iterations do not agree: {error}", file=sys.stderr)
    return 1 if results.summary["errors"] else 0


def _report_again(arguments: argparse.Namespace) -> int:
    from tensor_cast.evaluation.report import write_report
    from tensor_cast.evaluation.results import read_results
    from tensor_cast.evaluation.validate import require_valid

    require_valid(arguments.results)
    for path in write_report(read_results(arguments.results), arguments.language):
        print(path)
    return 0


def _request(arguments: argparse.Namespace, kind: Kind) -> EvaluationRequest:
    from tensor_cast.devices.registry import DeviceRegistry

    flags, given, defaults = given_flags(arguments, kind)
    # A registry of its own: the device list is read afresh, with what was added since this process started.
    device_files = _device_files(flags)
    registry = DeviceRegistry(device_files)
    model = _complete(arguments, kind, flags, given, registry)
    device = registry[registry.resolve(str(flags["--device"]))]
    flags["--device"] = given["device"] = device.name
    request = EvaluationRequest(
        kind=kind,
        model=model,
        device=device.name,
        device_files=device_files,
        flags=flags,
        given={"model": model.reference, **given},
        defaults=defaults,
        strategy=Strategy(chosen_by="single device"),
        command=_command(kind, model, flags, arguments),
    )
    return _with_strategy(request, device, arguments)


def _device_files(flags: Flags) -> tuple[Path, ...]:
    given = flags.get("--device-file", [])
    assert isinstance(given, list)
    return tuple(map(Path, given))


def _complete(
    arguments: argparse.Namespace, kind: Kind, flags: dict[str, Any], given: dict[str, Any], registry: DeviceRegistry
) -> EvaluatedModel:
    """Ask for what is missing on a terminal, else name all of it at once."""
    from tensor_cast.evaluation.models import evaluated_model, model_families, specs_of

    model = evaluated_model(arguments.model, arguments.spec) if arguments.model is not None else None
    missing: dict[str, tuple[str, ...]] = {}
    if arguments.model is None:
        missing["--model"] = tuple(model_families(pipelines=kind != "text"))
    if model is None and arguments.spec is None:
        missing["--spec"] = tuple(specs_of(arguments.model)) if arguments.model else ()
    if "--device" not in flags:
        missing["--device"] = tuple(registry)
    for names in _REQUIRED[kind]:
        if names[0] not in flags and not (len(names) > 1 and all(name in flags for name in names[1:])):
            missing[names[0]] = _choices(names[0], kind)
    if not missing:
        assert model is not None
        return model
    if not sys.stdin.isatty():
        raise UsageError(_missing_sentence(missing, arguments.model))
    answers: dict[str, str] = {}
    for flag, choices in missing.items():
        if flag == "--spec":
            family = arguments.model or answers["--model"]
            if evaluated_model(family, None) is not None:
                continue
            choices = tuple(specs_of(family))
        answers[flag] = ask(flag, choices, _HINTS.get(flag, ""))
    for flag, answer in answers.items():
        if flag not in ("--model", "--spec"):
            flags[flag] = answer
            given[flag.removeprefix("--").replace("-", "_")] = int(answer) if answer.isdigit() else answer
    found = evaluated_model(arguments.model or answers["--model"], arguments.spec or answers.get("--spec"))
    assert found is not None
    return found


_HINTS = {
    "--spec": "which model of the family",
    "--num-queries": "sequences in flight",
    "--query-length": "new tokens a sequence: a prefill's prompt, or a decode's 1",
    "--resolution": "height x width in pixels, such as 480x832",
    "--frame-num": "frames, such as 81",
}


def _choices(flag: str, kind: Kind) -> tuple[str, ...]:
    from cli.arguments.quantization import LINEAR_ACTIONS
    from tensor_cast.quantization import LINEAR_SCHEMES

    # What a checkpoint itself says is known of language models alone.
    schemes = LINEAR_ACTIONS if kind == "text" else tuple(LINEAR_SCHEMES)
    return schemes if flag == "--quantize-linear-action" else ()


def _missing_sentence(missing: dict[str, tuple[str, ...]], model: str | None) -> str:
    width = max(map(len, missing))
    lines = [f"Missing and without a default: {', '.join(missing)}."]
    for flag, choices in missing.items():
        text = f"one of {', '.join(choices)}" if choices else _HINTS[flag]
        lines.append(f"  {flag.ljust(width)}  {text}")
    if "--spec" in missing and model is not None and Path(model).exists():
        lines.append("A path does not tell how large its model is: say what you call it, such as --spec 7b.")
    elif "--spec" in missing and model is not None and not missing["--spec"]:
        from tensor_cast.errors import did_you_mean
        from tensor_cast.evaluation.models import model_families

        lines.append(f"The catalog has no family {model!r}.{did_you_mean(model, model_families())}")
    return "\n".join(lines)


def _command(kind: Kind, model: EvaluatedModel, flags: Flags, arguments: argparse.Namespace) -> str:
    """The command that makes the same evaluation again, whatever was asked on the way."""
    from tensor_cast.evaluation.flags import as_arguments

    own = ["--model", model.model if arguments.model is None else arguments.model]
    if arguments.spec is not None or arguments.model is None:
        own += ["--spec", model.spec]
    own += as_arguments(flags)
    own += ["--iterations", str(arguments.iterations)]
    if str(arguments.output_dir) != "results":
        own += ["--output-dir", str(arguments.output_dir)]
    for flag, is_given in (
        ("--overwrite", arguments.overwrite),
        ("--accept-recommended", arguments.accept_recommended),
        ("--no-advice", arguments.no_advice),
    ):
        own += [flag] if is_given else []
    own += ["--language", arguments.language] if arguments.language != "en" else []
    return shlex.join(["msmodeling", "evaluate", kind, *own])


def _with_strategy(
    request: EvaluationRequest, device: DeviceProfile, arguments: argparse.Namespace
) -> EvaluationRequest:
    """Several devices are shared out as the user says, or as recommended and accepted; never by a guess."""
    from tensor_cast.evaluation import strategy

    world = int(str(request.flags.get("--world-size", "1")))
    if world == 1:
        return request
    names = _STRATEGY_FLAGS[request.is_text]
    chosen = {name: request.flags[name] for name in names if name in request.flags}
    recommended = _recommended(request, device, world)
    if chosen:
        kind = strategy.strategy_kind(chosen)
        return request.with_strategy(Strategy(chosen_by="user", flags=chosen, recommended=recommended, kind=kind))
    proposal = strategy.with_consequences(request, recommended)
    from tensor_cast.evaluation.flags import as_arguments, command_line

    typed = command_line(*as_arguments(recommended))
    print(f"recommended strategy for {world} devices: {proposal.kind}\n  {typed}\nIt brings these collectives:")
    print("\n".join(f"  {line}" for line in proposal.collectives) or "  none")
    if arguments.accept_recommended:
        accepted = "--accept-recommended"
    elif not sys.stdin.isatty():
        raise UsageError(
            f"--world-size {world} needs a parallel strategy. Recommended is {typed}: give it, or --accept-recommended."
        )
    elif ask_yes_or_no("Use it?"):
        accepted = "answering Y"
    else:
        raise UsageError(f"Give a parallel strategy for --world-size {world}: {', '.join(names)}.")
    from dataclasses import replace

    return request.with_strategy(replace(proposal, accepted=accepted))


def _recommended(request: EvaluationRequest, device: DeviceProfile, world: int) -> Flags:
    from tensor_cast.evaluation import strategy

    if not request.is_text:
        return strategy.recommended_generation_flags(world, use_cfg=bool(request.flags.get("--use-cfg")))
    if world > device.interconnect.device_count:
        # The simulator refuses such a world with the numbers.
        return {"--tp-size": str(world)}
    family = request.flags.get("--model-family")
    return strategy.recommended_text_flags(
        request.model.reference, device, world, family=family if isinstance(family, str) else None
    )
