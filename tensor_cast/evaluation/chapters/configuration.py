"""The chapter of the test configuration: what was asked, what was taken by default, on what."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tensor_cast.evaluation.language import Language
from tensor_cast.evaluation.pages.blocks import Block, Column, Facts, Heading, Table
from tensor_cast.evaluation.results import Results


def configuration_chapter(results: Results, t: Language) -> list[Block]:
    """Model, device and strategy; then each parameter that was given or accepted."""
    config = results.config
    parallel = ", ".join(f"{name} {size}" for name, size in config["parallel"].items())
    facts = (
        (t("Model"), f"{config['model']['model']} {config['model']['spec']} (`{config['model']['reference']}`)"),
        (t("Device"), f"{config['device']['name']}: {config['device']['description'] or config['device']['vendor']}"),
        (t("Parallel sizes"), parallel),
        (t("Strategy"), _strategy(config["strategy"], t)),
        (t("Iterations"), f"{config['iterations']}"),
    )
    origins = dict.fromkeys(config["given"], "given") | dict.fromkeys(config["accepted"], "recommended")
    table = Table(
        (Column(t("Parameter")), Column(t("Value")), Column(t("Origin"))),
        tuple((f"`{name}`", _value(config["parameters"][name], t), t(origin)) for name, origin in origins.items()),
        note=t("The appendix lists parameters that kept their defaults."),
    )
    return [Facts(facts), Heading(t("Parameters"), 3), table]


def _strategy(strategy: Mapping[str, Any], t: Language) -> str:
    pieces = (piece.rpartition(" ") for piece in strategy["kind"].split(" x "))
    kind = " x ".join(f"{t.known(name)} {size}".strip() for name, _, size in pieces)
    if strategy["chosen_by"] == "single device":
        return t("one device")
    if strategy["chosen_by"] == "recommendation":
        return t("{kind}: recommended, and accepted by {how}", kind=kind, how=strategy["accepted"])
    return t("{kind}: chosen by the user", kind=kind)


def _value(value: Any, t: Language) -> str:
    if isinstance(value, bool):
        return t("yes") if value else t("no")
    if isinstance(value, list):
        return " ".join(map(str, value))
    return f"`{value}`" if isinstance(value, str) else str(value)
