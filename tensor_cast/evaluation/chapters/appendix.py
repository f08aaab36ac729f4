"""The appendix: commands, versions, and the device's figures with their sources."""

from __future__ import annotations

from typing import Any

from tensor_cast.evaluation.language import Language
from tensor_cast.evaluation.pages.blocks import Block, Code, Column, Facts, Heading, Paragraph, Table
from tensor_cast.evaluation.results import Results


def appendix(results: Results, t: Language) -> list[Block]:
    """What is needed to run the evaluation again, and to judge it."""
    config = results.config
    defaults = ", ".join(f"`{name} = {_default(config['parameters'][name])}`" for name in config["defaulted"])
    versions = tuple((name, str(value)) for name, value in config["versions"].items())
    return [
        Heading(t("Commands"), 3),
        Paragraph(t("This evaluation:")),
        Code(config["command"]),
        Paragraph(t("The simulation that each iteration ran:")),
        Code(config["simulator_command"]),
        Heading(t("Parameters that kept their defaults"), 3),
        Paragraph(defaults),
        Heading(t("Versions"), 3),
        Facts(versions),
        Heading(t("Figures of the device"), 3),
        Table(
            (Column(t("Figure")), Column(t("Value"), right=True), Column(t("Unit")), Column(t("Source"))),
            tuple(
                (f"`{one['path']}`", _number(one["value"]), one["unit"], one["source"])
                for one in config["device"]["figures"]
            ),
            note=t("A source that starts with assumed is a rule of this tool, not a measurement."),
        ),
    ]


def _default(value: Any) -> str:
    if value in (None, [], {}, ""):
        return "none"
    return " ".join(map(str, value)) if isinstance(value, list) else str(value)


def _number(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)
