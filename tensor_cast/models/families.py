"""Which module reads which ``model_type``."""

from __future__ import annotations

from collections.abc import Callable

from tensor_cast.errors import ModelingError, did_you_mean
from tensor_cast.models import deepseek, gemma, gpt_oss, llama, llama4, moe
from tensor_cast.models.config import Config
from tensor_cast.models.spec import ModelSpec

Reader = Callable[[Config, str], ModelSpec]

FAMILIES: dict[str, Reader] = {
    "llama": llama.llama,
    "mistral": llama.mistral,
    "qwen2": llama.qwen2,
    "qwen3": llama.qwen3,
    "phi3": llama.phi3,
    "ernie4_5": llama.ernie45,
    "gemma2": gemma.gemma2,
    "gemma3_text": gemma.gemma3_text,
    "llama4_text": llama4.llama4_text,
    "mixtral": moe.mixtral,
    "qwen2_moe": moe.qwen2_moe,
    "qwen3_moe": moe.qwen3_moe,
    "glm4_moe": moe.glm4_moe,
    "minimax_m2": moe.minimax_m2,
    "ernie4_5_moe": moe.ernie45_moe,
    "deepseek_v2": deepseek.deepseek,
    "deepseek_v3": deepseek.deepseek,
    "kimi_k2": deepseek.deepseek,
    "gpt_oss": gpt_oss.gpt_oss,
}
"""Reader of each ``model_type``; ``--model-family`` names one of these."""

WRAPPERS = {"llama4": "text_config", "gemma3": "text_config"}
"""Multimodal configs whose language model stands in a nested object; the rest of them is said to be left out."""


def read_spec(values: dict[str, object], *, name: str, where: str, family: str | None = None) -> ModelSpec:
    """The structure that a config describes.

    Args:
        values: the parsed ``config.json``.
        name: what to call the model.
        where: the file or address, for errors.
        family: read it as this family, whatever its ``model_type`` says.

    Raises:
        ModelingError: the family is unknown, or a key is missing, malformed or contradictory.
    """
    config = Config(values, where=where)
    model_type = family or config.text("model_type", "")
    if not model_type:
        raise ModelingError(
            f"{where}: $.model_type is missing; name one of the families with --model-family: {_known()}."
        )
    if family is not None and family not in FAMILIES and family not in WRAPPERS:
        raise ModelingError(f"Unknown model family {family!r}: one of {_known()}.{did_you_mean(family, FAMILIES)}")
    if model_type in WRAPPERS and config.has(WRAPPERS[model_type]):
        inner = config.child(WRAPPERS[model_type])
        inner_type = inner.text("model_type", f"{model_type}_text")
        reader = FAMILIES.get(inner_type)
        if reader is not None:
            return reader(inner, name)
    reader = FAMILIES.get(model_type)
    if reader is None:
        raise ModelingError(
            f"{where}: model_type {model_type!r} is of no known family; its cost is not guessed. Known: {_known()}. "
            "If it has the structure of one of these, say so with --model-family."
        )
    return reader(config, name)


def _known() -> str:
    return ", ".join(sorted(FAMILIES))
