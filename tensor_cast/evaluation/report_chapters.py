"""Chapters of the report that show figures as they were found."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tensor_cast.evaluation.language import Language
from tensor_cast.evaluation.pages.blocks import (
    Bar,
    Block,
    Card,
    Cards,
    Code,
    Column,
    Facts,
    Figure,
    Heading,
    Paragraph,
    Table,
)
from tensor_cast.evaluation.pages.charts import Part, bars, series_colour, stacked_bar
from tensor_cast.evaluation.results import Results
from tensor_cast.evaluation.summary import idle_s
from tensor_cast.reporting.units import byte_size, column_unit, duration

_MEMORY_PARTS = (
    ("weights_bytes", "weights", "weights"),
    ("kv_cache_bytes", "KV cache", "cache"),
    ("state_bytes", "state", "s5"),
    ("activation_bytes", "activations", "activations"),
    ("reserved_bytes", "reserved", "reserved"),
)
_SHOWN_KERNELS = 12
_CHART_KERNELS = 8


def percent(share: float) -> str:
    """``12.3%``; what is above zero is not shown as zero."""
    text = f"{share:.1%}"
    return "<0.1%" if text == "0.0%" and share > 0.0 else text


def headline(results: Results, t: Language) -> list[Block]:
    """The verdict and the figures to remember."""
    summary, metrics = results.summary, results.summary["metrics"]
    blocks: list[Block] = []
    if not metrics["fits"]:
        verdict = t("It does not fit into the memory of one device; times below are of a step that could not run so.")
        blocks.append(Paragraph(verdict, "bad"))
    if summary["status"] != "ok":
        blocks.append(Paragraph(t("The iterations do not agree: the figures below are the first one's."), "bad"))
        blocks += [Paragraph(f"`{error}`") for error in summary["errors"]]
    cards = [
        Card(t(_time_label(results)), duration(metrics["execution_time_s"]), _time_note(results, t)),
        *([Card(t("Likely range"), likely, t("in four cases of five"))] if (likely := _likely(metrics)) else []),
    ]
    if (tokens := metrics.get("tokens_per_s_per_device")) is not None:
        world = results.config["parallel"]["world"]
        note = t("{total} tokens/s on all {world} devices", total=f"{tokens * world:,.0f}", world=world)
        cards.append(Card(t("Tokens/s a device"), f"{tokens:,.1f}", note if world > 1 else ""))
    if (step := metrics.get("step_time_s")) is not None:
        cards.append(Card(t("Denoising step"), duration(step)))
    used, device = metrics["memory_used_bytes"], summary["memory"]["device_bytes"]
    memory = Card(
        t("Memory used"),
        percent(used / device),
        t("{used} of {device}", used=byte_size(used), device=byte_size(device)),
        "plain" if metrics["fits"] else "bad",
    )
    name, category = max(summary["operators"]["categories"].items(), key=lambda item: float(item[1]["total_s"]))
    largest = Card(t("Largest category"), name, t("{share} of the time", share=percent(category["share"])))
    return [*blocks, Cards((*cards, memory, largest))]


def _time_label(results: Results) -> str:
    if results.config["kind"] != "text":
        return "One generation"
    return "Decode step" if results.summary["estimate"]["workload"]["decode"] else "Prefill"


def _time_note(results: Results, t: Language) -> str:
    metrics = results.summary["metrics"]
    if (tpot := metrics.get("tpot_s")) is not None:
        return t("TPOT {time}", time=duration(tpot))
    if (ttft := metrics.get("ttft_s")) is not None:
        return t("TTFT {time}, without queueing", time=duration(ttft))
    return ""


def _likely(metrics: Mapping[str, Any]) -> str:
    """The times between which the true one lies in four cases of five; empty where that is not known."""
    if metrics.get("error_low") is None or metrics.get("error_high") is None:
        return ""
    ends = (duration(metrics["execution_time_s"] * (1.0 + metrics[name])) for name in ("error_low", "error_high"))
    return " - ".join(ends)


def configuration_chapter(results: Results, t: Language) -> list[Block]:
    """What was asked, what was taken by default, on what."""
    config = results.config
    parallel = ", ".join(f"{name} {size}" for name, size in config["parallel"].items())
    strategy = config["strategy"]
    facts = [
        (t("Model"), f"{config['model']['model']} {config['model']['spec']} (`{config['model']['reference']}`)"),
        (t("Device"), f"{config['device']['name']}: {config['device']['description'] or config['device']['vendor']}"),
        (t("Parallel sizes"), parallel),
        (t("Strategy"), _strategy(strategy, t)),
        (t("Iterations"), f"{config['iterations']}"),
    ]
    origins = dict.fromkeys(config["given"], "given") | dict.fromkeys(config["accepted"], "recommended")
    table = Table(
        (Column(t("Parameter")), Column(t("Value")), Column(t("Origin"))),
        tuple((f"`{name}`", _value(config["parameters"][name], t), t(origin)) for name, origin in origins.items()),
        note=t("The appendix lists parameters that kept their defaults."),
    )
    return [Facts(tuple(facts)), Heading(t("Parameters"), 3), table]


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


def metrics_chapter(results: Results, t: Language) -> list[Block]:
    """The metrics table, and each iteration."""
    metrics, estimate = results.summary["metrics"], results.summary["estimate"]
    flops, rate = metrics["achieved_flops_per_s"], metrics["achieved_bytes_per_s"]
    rows: list[tuple[str, str]] = [(t("Execution time"), duration(metrics["execution_time_s"]))]
    for key, name in (
        ("ttft_s", "TTFT, without queueing"),
        ("tpot_s", "TPOT"),
        ("step_time_s", "Denoising step"),
        ("forward_time_s", "One forward"),
        ("idle_s", "Time between kernels"),
    ):
        if metrics.get(key) is not None:
            rows.append((t(name), duration(metrics[key])))
    if metrics.get("tokens_per_s_per_device") is not None:
        rows.append((t("Tokens/s a device"), f"{metrics['tokens_per_s_per_device']:,.1f}"))
    if likely := _likely(metrics):
        rows.insert(1, (t("Likely range, in four cases of five"), likely))
    for stage in estimate.get("stages", ()):
        text = f"{duration(stage['total_s'])} ({percent(stage['share'])})"
        rows.append((t("Stage {stage}", stage=t.known(stage["name"])), text))
    rows += [
        (t("Parameters of the model"), _parameters(estimate["parameters"], t)),
        (t("Reached compute rate of a device"), f"{flops / 1e12:,.1f} TFLOP/s{_of_peak(flops, results, t)}"),
        (t("Reached memory rate of a device"), f"{rate / 1e9:,.1f} GB/s{_of_bandwidth(rate, results, t)}"),
        (t("Memory used"), byte_size(metrics["memory_used_bytes"])),
        (t("Fits"), t("yes") if metrics["fits"] else t("no")),
    ]
    iterations = Table(
        (
            Column(t("Iteration")),
            Column(t("Execution time"), right=True),
            Column(t("Time of the simulation"), right=True),
            Column(t("Log")),
        ),
        tuple(
            (
                str(one["iteration"]),
                duration(one["execution_time_s"]),
                duration(one["wall_time_s"]),
                f"`{one['log']}`",
            )
            for one in results.summary["iterations"]
        ),
    )
    verdict = (
        Paragraph(t("All iterations, each in a fresh process, found the same figures to the last digit."), "good")
        if results.summary["status"] == "ok" and len(results.summary["iterations"]) > 1
        else None
    )
    warnings = [Paragraph(t.warning(text), "warning") for text in estimate.get("warnings", ())]
    blocks: list[Block] = [
        Table((Column(t("Metric")), Column(t("Value"))), tuple(rows)),
        *warnings,
        Heading(t("Iterations"), 3),
        iterations,
    ]
    return [*blocks, verdict] if verdict else blocks


def _parameters(parameters: Mapping[str, Any], t: Language) -> str:
    total, active = parameters.get("total"), parameters.get("active")
    if not isinstance(total, int):
        return ", ".join(f"{name} {value:,}" for name, value in parameters.items() if isinstance(value, int))
    if active in (None, total):
        return f"{total:,}"
    return t("{total:,}, active {active:,}", total=total, active=active)


def _figure(results: Results, path: str) -> float | None:
    figures = results.config["device"]["figures"]
    return next((float(figure["value"]) for figure in figures if figure["path"] == path), None)


def _of_peak(flops: float, results: Results, t: Language) -> str:
    peak = _figure(results, "matrix_flops.bfloat16")
    return "" if not peak else " " + t("({share} of the BF16 peak)", share=percent(flops / peak))


def _of_bandwidth(rate: float, results: Results, t: Language) -> str:
    peak = _figure(results, "memory_bandwidth")
    return "" if not peak else " " + t("({share} of the peak)", share=percent(rate / peak))


def operators_chapter(results: Results, t: Language) -> list[Block]:
    """Categories, bounds and top kernels."""
    operators, estimate = results.summary["operators"], results.summary["estimate"]
    idle = idle_s(estimate)
    total_s = sum(op["total_s"] for op in estimate["ops"]) + idle or 1.0
    categories = operators["categories"]
    between = [Part(t("between kernels"), idle, percent(idle / total_s), "gap")] if idle else []
    unit = column_unit([one["total_s"] for one in categories.values()])
    blocks: list[Block] = [
        Figure(
            stacked_bar(
                t("Time by category"),
                [
                    *(Part(name, one["total_s"], percent(one["share"]), name) for name, one in categories.items()),
                    *between,
                ],
            ),
            t("Share of each category, and of the time between kernels"),
        ),
        Table(
            (
                Column(t("Category")),
                Column(t("Time {unit}", unit=unit[1]), right=True),
                Column(t("Share")),
                Column(t("Calls"), right=True),
                Column(t("Longest kernel")),
            ),
            tuple(
                (
                    name,
                    f"{one['total_s'] / unit[0]:,.3f}",
                    Bar(percent(one["share"]), one["share"], name),
                    f"{one['calls']:,.0f}",
                    one["longest"] or "-",
                )
                for name, one in categories.items()
            ),
            note=t("Between kernels: {time}.", time=duration(idle)) if idle else "",
        ),
    ]
    if (hidden := estimate.get("overlapped_s", 0.0)) > 0.0:
        blocks.append(Paragraph(t("{time} of these run hidden behind others.", time=duration(hidden)), "quiet"))
    blocks += _bounds(operators["bounds"], total_s, between, t)
    return [*blocks, *_kernels(estimate["ops"], total_s, t)]


def _bounds(bounds: Mapping[str, float], total_s: float, between: list[Part], t: Language) -> list[Block]:
    return [
        Heading(t("What bounds the time"), 3),
        Figure(
            stacked_bar(
                t("Time by bound"),
                [
                    *(
                        Part(t.known(name), seconds, percent(seconds / total_s), name)
                        for name, seconds in bounds.items()
                    ),
                    *between,
                ],
            ),
            t(
                "Each kernel counts for what bounds it: matrix units, vector units, memory, links (comm), its fixed "
                "cost, or waiting"
            ),
        ),
    ]


def _kernels(ops: list[dict[str, Any]], total_s: float, t: Language) -> list[Block]:
    longest = sorted(ops, key=lambda op: -float(op["total_s"]))
    shown, rest = longest[:_SHOWN_KERNELS], longest[_SHOWN_KERNELS:]
    unit = column_unit([op["total_s"] for op in shown])
    rows = [
        (
            op["name"],
            op["part"],
            f"{op['count']:,.0f}",
            f"{op['total_s'] / unit[0]:,.3f}",
            f"{op['average_s'] * 1e6:,.1f}",
            Bar(percent(op["total_s"] / total_s), op["total_s"] / total_s, op["category"]),
            t.known(op["bound"]),
            t.known(op["source"]),
        )
        for op in shown
    ]
    note = ""
    if rest:
        seconds = sum(op["total_s"] for op in rest)
        note = t("{count} more kernels take {share} together.", count=len(rest), share=percent(seconds / total_s))
    return [
        Heading(t("Top kernels"), 3),
        Figure(
            bars(
                t("Longest kernels"),
                [
                    Part(f"{op['name']} · {op['part']}", op["total_s"], duration(op["total_s"]), op["category"])
                    for op in longest[:_CHART_KERNELS]
                ],
            ),
            t("The longest kernels, all their calls together, in the colour of their category"),
        ),
        Table(
            (
                Column(t("Kernel")),
                Column(t("Part of the model")),
                Column(t("Calls"), right=True),
                Column(t("Time {unit}", unit=unit[1]), right=True),
                Column(t("Average us"), right=True),
                Column(t("Share")),
                Column(t("Bound by")),
                Column(t("Source")),
            ),
            tuple(rows),
            note=note,
        ),
    ]


def communication_chapter(results: Results, t: Language) -> list[Block]:
    """Each collective: how often, how much, over which link, how fast."""
    found = merged_collectives(results.summary["collectives"])
    if not found:
        return [Paragraph(t("This strategy needs no collective."))]
    unit = column_unit([one["total_s"] for one in found])
    rows = tuple(
        (
            one["name"],
            one["part"],
            f"{one['count']:,.0f}",
            byte_size(one["bytes"]),
            f"{one['group_size']}",
            one["link"],
            f"{one['total_s'] / unit[0]:,.3f}",
            f"{one['bytes'] * one['count'] / one['total_s'] / 1e9:,.1f}" if one["total_s"] else "-",
        )
        for one in found
    )
    by_kind: dict[str, float] = {}
    for one in found:
        by_kind[one["name"]] = by_kind.get(one["name"], 0.0) + one["total_s"]
    share = results.summary["operators"]["categories"]["Comm"]["share"]
    blocks: list[Block] = [
        Paragraph(t("Communication takes {share} of the time.", share=percent(share))),
        Figure(
            bars(
                t("Time by collective"),
                [Part(name, seconds, duration(seconds), "Comm") for name, seconds in by_kind.items()],
            ),
            t("Time of each kind of collective"),
        ),
        Table(
            (
                Column(t("Collective")),
                Column(t("Part of the model")),
                Column(t("Calls"), right=True),
                Column(t("Bytes a call"), right=True),
                Column(t("Group"), right=True),
                Column(t("Link")),
                Column(t("Time {unit}", unit=unit[1]), right=True),
                Column(t("GB/s of message"), right=True),
            ),
            rows,
        ),
    ]
    if any(one.get("fused") for one in found):
        blocks.append(Paragraph(t("Some of these run inside fused kernels and are hidden there."), "quiet"))
    return blocks


def merged_collectives(found: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """One entry a kind, part, size and group; layers that do the same are added up."""
    merged: dict[tuple[Any, ...], dict[str, Any]] = {}
    for one in found:
        key = tuple(one[name] for name in ("name", "part", "bytes", "group_size", "link", "fused"))
        total = merged.setdefault(key, {**one, "count": 0.0, "total_s": 0.0})
        total["count"] += one["count"]
        total["total_s"] += one["total_s"]
    return list(merged.values())


def memory_chapter(results: Results, t: Language) -> list[Block]:
    """What fills the fullest device."""
    memory = results.summary["memory"]
    device = memory["device_bytes"]
    parts = memory_parts(memory, t)
    used = sum(part.value for part in parts)
    available = device - used
    free = [Part(t("available"), available, byte_size(available), "free")] if available > 0.0 else []
    rows = tuple((part.label, byte_size(part.value), percent(part.value / device)) for part in parts)
    return [
        Figure(
            stacked_bar(t("Memory of the fullest device"), [*parts, *free]),
            t("Memory of the fullest device, of {device}", device=byte_size(device)),
        ),
        Table(
            (Column(t("Use")), Column(t("Size"), right=True), Column(t("Of the device"), right=True)),
            rows,
            total=(t("used"), byte_size(used), percent(used / device)),
            note=t("Sizes in powers of 1000."),
        ),
    ]


def memory_parts(memory: Mapping[str, Any], t: Language) -> list[Part]:
    """What the fullest device holds; a generation's components by name, with the activations of its fullest stage."""
    if "components" not in memory:
        sizes = [(t.known(name), float(memory[key]), colour) for key, name, colour in _MEMORY_PARTS if key in memory]
    else:
        sizes = [
            (one["name"], float(one["bytes"]), series_colour(index))
            for index, one in enumerate(memory["components"])
            if one["resident"]
        ]
        rest = memory["device_bytes"] - memory["available_bytes"] - sum(size for _, size, _ in sizes)
        reserved = float(memory["reserved_bytes"])
        sizes.append((t("the fullest stage beside"), rest - reserved, "s5"))
        sizes.append((t("reserved"), reserved, "reserved"))
    return [Part(name, size, byte_size(size), colour) for name, size, colour in sizes if size > 0.0]


def appendix(results: Results, t: Language) -> list[Block]:
    """Commands, versions, and the device's figures with their sources."""
    config = results.config
    figures = config["device"]["figures"]
    defaults = [(name, config["parameters"][name]) for name in config["defaulted"]]
    versions = tuple((name, str(value)) for name, value in config["versions"].items())
    return [
        Heading(t("Commands"), 3),
        Paragraph(t("This evaluation:")),
        Code(config["command"]),
        Paragraph(t("The simulation that each iteration ran:")),
        Code(config["simulator_command"]),
        Heading(t("Parameters that kept their defaults"), 3),
        Paragraph(", ".join(f"`{name} = {_default(value)}`" for name, value in defaults)),
        Heading(t("Versions"), 3),
        Facts(versions),
        Heading(t("Figures of the device"), 3),
        Table(
            (Column(t("Figure")), Column(t("Value"), right=True), Column(t("Unit")), Column(t("Source"))),
            tuple((f"`{one['path']}`", _number(one["value"]), one["unit"], one["source"]) for one in figures),
            note=t("A source that starts with assumed is a rule of this tool, not a measurement."),
        ),
    ]


def _default(value: Any) -> str:
    if value in (None, [], {}, ""):
        return "none"
    return " ".join(map(str, value)) if isinstance(value, list) else str(value)


def _number(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)
