"""What stands above the first chapter: the verdict and the figures to remember."""

from __future__ import annotations

from tensor_cast.evaluation.chapters.metrics import likely_range
from tensor_cast.evaluation.language import Language
from tensor_cast.evaluation.pages.blocks import Block, Card, Cards, Paragraph
from tensor_cast.evaluation.results import Results
from tensor_cast.units import byte_size, duration, percent


def headline(results: Results, t: Language) -> list[Block]:
    """The verdict, where it is a bad one, and the figures to remember."""
    cards = (*_speed_cards(results, t), _memory_card(results, t), _largest_category_card(results, t))
    return [*_verdict(results, t), Cards(cards)]


def _verdict(results: Results, t: Language) -> list[Block]:
    summary = results.summary
    blocks: list[Block] = []
    if not summary["metrics"]["fits"]:
        verdict = t("It does not fit into the memory of one device; the times are of a run that could not take place.")
        blocks.append(Paragraph(verdict, "bad"))
    if summary["status"] != "ok":
        blocks.append(Paragraph(t("The iterations do not agree: the figures below are the first one's."), "bad"))
        blocks += [Paragraph(f"`{error}`") for error in summary["errors"]]
    return blocks


def _speed_cards(results: Results, t: Language) -> list[Card]:
    """Time and its likely range, throughput of a language model, one step of a generation."""
    metrics = results.summary["metrics"]
    cards = [Card(t(_time_label(results)), duration(metrics["execution_time_s"]), _time_note(results, t))]
    if likely := likely_range(metrics):
        cards.append(Card(t("Likely range"), likely, t("in four cases of five")))
    if (tokens := metrics.get("tokens_per_s_per_device")) is not None:
        world = results.config["parallel"]["world"]
        note = t("{total} tokens/s on all {world} devices", total=f"{tokens * world:,.0f}", world=world)
        cards.append(Card(t("Tokens/s a device"), f"{tokens:,.1f}", note if world > 1 else ""))
    if (step := metrics.get("step_time_s")) is not None:
        cards.append(Card(t("Denoising step"), duration(step)))
    return cards


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


def _memory_card(results: Results, t: Language) -> Card:
    metrics = results.summary["metrics"]
    used, device = metrics["memory_used_bytes"], results.summary["memory"]["device_bytes"]
    note = t("{used} of {device}", used=byte_size(used), device=byte_size(device))
    return Card(t("Memory used"), percent(used / device), note, "plain" if metrics["fits"] else "bad")


def _largest_category_card(results: Results, t: Language) -> Card:
    categories = results.summary["operators"]["categories"]
    name, category = max(categories.items(), key=lambda item: float(item[1]["total_s"]))
    return Card(t("Largest category"), name, t("{share} of the time", share=percent(category["share"])))
