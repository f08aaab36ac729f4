"""Compare predicted generations with published times, and write docs/accuracy/diffusion.md.

    python benchmarks/video_accuracy.py --measured DIRECTORY [--write]

``--measured`` is a directory with ``e2e.csv`` (device, num_devices, model, parallelism, framework, metric, value,
source) and ``ascend_steps.json`` (cases of kind ``video``). Rows with an even CRC-32 of their key may have been fitted
to (``fit_video.py``); the others have not.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

if __package__ in (None, ""):
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from benchmarks.measured_kernels import is_fitted
from benchmarks.video_rows import ASSUMPTIONS, Request, priced, requests

LIMIT = 0.25
PAGE = Path(__file__).parents[1] / "docs" / "accuracy" / "diffusion.md"

EXPLANATIONS: tuple[tuple[str, str], ...] = (
    (
        r"Atlas 800I A2; .*832x480x61f",
        "Not known. 30 s are missing here and 16 s in the larger generation beside it, so what is missing does not "
        "grow with the tokens.",
    ),
    (
        r"ConsisID",
        "ConsisID has a face extractor and cross-attention layers that CogVideoX-5B has not. On one device, and with a "
        "device for each guidance, that hardly shows; but two ranks that share out the tokens take 17 s longer: 4 ms a "
        "block, forty times an all-to-all over NVLink. (The page gives the last row to Ring 3.)",
    ),
)
"""(pattern of the key, why) of rows beyond ``LIMIT``; the first match counts."""


@dataclass(frozen=True)
class Row:
    """One published time that can be compared, and the prediction for it."""

    request: Request
    predicted_s: float
    attention_share: float
    low: float
    high: float

    @property
    def error(self) -> float:
        """Relative error of the prediction."""
        return self.predicted_s / self.request.measured_s - 1.0

    @property
    def inside(self) -> bool:
        """Whether the measured time lies in the prediction's band."""
        return (1.0 + self.low) * self.predicted_s <= self.request.measured_s <= (1.0 + self.high) * self.predicted_s

    @property
    def fitted(self) -> bool:
        """Whether constants may come from this row."""
        return is_fitted(self.request.key)

    @property
    def why(self) -> str:
        """Why the error is beyond ``LIMIT``; nothing where it is not."""
        if abs(self.error) <= LIMIT:
            return ""
        return next((why for pattern, why in EXPLANATIONS if re.search(pattern, self.request.key)), "Not known.")


def compare(rows: Sequence[Request]) -> list[Row]:
    """Every row that can be compared, in the files' order."""
    compared = []
    for request in rows:
        if request.apart:
            continue
        assert request.profile is not None
        seconds, estimate = priced(request, request.profile)
        share = float(estimate.categories["FlashAttention"] / estimate.total_time_s)
        compared.append(Row(request, seconds, share, float(estimate.error_low), float(estimate.error_high)))
    return compared


def summary(what: str, rows: Sequence[Row]) -> str:
    """A line of the table of errors."""
    errors = np.array([row.error for row in rows])
    shares = (np.mean(np.abs(errors) <= limit) for limit in (0.10, 0.15, LIMIT))
    cells = (np.mean(np.abs(errors)), np.median(np.abs(errors)), np.max(np.abs(errors)))
    inside = np.mean([row.inside for row in rows])
    figures = [f"{cell:.1%}" for cell in cells] + [f"{np.mean(errors):+.1%}"]
    figures += [f"{share:.0%}" for share in (*shares, inside)]
    return f"| {what} | {len(errors)} | {' | '.join(figures)} |"


def page(rows: Sequence[Request]) -> str:
    """The page in Markdown."""
    compared = compare(rows)
    apart = [request for request in rows if request.apart]
    held_out = [row for row in compared if not row.fitted]
    reasons = list(dict.fromkeys(row.why for row in compared if row.why))
    lines = [
        "# Accuracy: diffusion models",
        "",
        f"Written by `python benchmarks/video_accuracy.py --measured DIRECTORY --write` from {len(rows)} published "
        f"times of whole generations, or of their stages. {len(compared)} of them are compared, {len(apart)} cannot be "
        "and stand at the end with the reason.",
        "",
        "A row counts as fitted when the CRC-32 of its key is even: constants of device profiles come from such rows "
        "only (`benchmarks/fit_video.py`), where not from kernels measured alone. Errors are relative; mean and median "
        "have no regard to sign. *In band* is the share of rows whose time lies in the predicted 80% band of the whole "
        "generation; 70 to 90% would be honest.",
        "",
        "| rows | n | mean | median | worst | bias | within 10% | within 15% | within 25% | in band |",
        "| --- | --: | --: | --: | --: | --: | --: | --: | --: | --: |",
        summary("held out", held_out),
        summary("fitted", [row for row in compared if row.fitted]),
        summary("all", compared),
        "",
        "Held out, by device:",
        "",
        "| device | n | mean | median | worst | bias | within 10% | within 15% | within 25% | in band |",
        "| --- | --: | --: | --: | --: | --: | --: | --: | --: | --: |",
        *(
            summary(device, [row for row in held_out if row.request.device == device])
            for device in dict.fromkeys(row.request.device for row in held_out)
        ),
        "",
        "| device | ranks | model | how | metric | measured s | predicted s | error | attention | half | note |",
        "| --- | --: | --- | --- | --- | --: | --: | --: | --: | --- | --- |",
    ]
    for row in compared:
        request = row.request
        note, half = f"[{reasons.index(row.why) + 1}]" if row.why else "", "fitted" if row.fitted else "held out"
        found = (f"{row.predicted_s:,.4g}", f"{row.error:+.0%}", f"{row.attention_share:.0%}")
        lines.append(f"| {' | '.join(map(str, (*_cells(request), *found, half, note)))} |")
    lines += ["", "`attention` is the share of the predicted time in FlashAttention.", "", "Assumptions:", ""]
    lines += [f"- {text}" for text in ASSUMPTIONS]
    lines += ["", "Notes on rows beyond 25%:", "", *(f"{index}. {why}" for index, why in enumerate(reasons, 1))]
    lines += ["", "## Not compared", "", "| device | ranks | model | how | metric | measured s | why |"]
    lines.append("| --- | --: | --- | --- | --- | --: | --- |")
    for request in apart:
        lines.append(f"| {' | '.join(map(str, (*_cells(request), request.apart)))} |")
    return "\n".join(lines) + "\n"


def _cells(request: Request) -> tuple[str | int, ...]:
    measured = f"{request.measured_s:,.4g}"
    return request.device, request.ranks, request.model, request.how, request.metric, measured


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--measured", type=Path, required=True, metavar="DIRECTORY")
    parser.add_argument("--write", action="store_true", help=f"write {PAGE.name} instead of printing it")
    arguments = parser.parse_args()
    text = page(list(requests(arguments.measured)))
    if not arguments.write:
        print(text)
        return
    PAGE.parent.mkdir(parents=True, exist_ok=True)
    temporary = PAGE.with_suffix(".tmp")
    temporary.write_text(text, encoding="utf-8")
    temporary.replace(PAGE)


if __name__ == "__main__":
    main()
