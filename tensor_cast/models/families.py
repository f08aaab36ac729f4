"""Which module reads which ``model_type``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tensor_cast.errors import ModelingError, did_you_mean
from tensor_cast.models import (
    bailing,
    deepseek,
    deepseek_v4,
    gemma,
    gpt_oss,
    internvl,
    kimi,
    llama,
    llama4,
    mimo,
    minimax,
    moe,
    nemotron,
    phi,
    qwen_hybrid,
    step,
    vision_encoders,
    wrapper,
)
from tensor_cast.models.config import Config
from tensor_cast.models.spec import ModelSpec

Reader = Callable[[Config, str], ModelSpec]

FAMILIES: dict[str, Reader] = {
    "llama": llama.llama,
    "mistral": llama.mistral,
    "ministral3": llama.mistral,
    "qwen2": llama.qwen2,
    "qwen3": llama.qwen3,
    "ernie4_5": llama.ernie45,
    "internlm2": llama.internlm,
    "internlm3": llama.internlm,
    "glm": llama.glm,
    "glm4": llama.glm4,
    "cohere": llama.cohere,
    "phi3": phi.phi3,
    "phimoe": phi.phimoe,
    "gemma": gemma.gemma,
    "gemma2": gemma.gemma2,
    "gemma3_text": gemma.gemma3_text,
    "gemma4_text": gemma.gemma4_text,
    "llama4_text": llama4.llama4_text,
    "mixtral": moe.mixtral,
    "qwen2_moe": moe.qwen2_moe,
    "qwen3_moe": moe.qwen3_moe,
    "qwen3_next": qwen_hybrid.qwen3_next,
    "qwen3_5_text": qwen_hybrid.qwen3_5,
    "qwen3_5_moe_text": qwen_hybrid.qwen3_5_moe,
    "glm4_moe": moe.glm4_moe,
    "minimax_m2": minimax.minimax_m2,
    "minimax_m3": minimax.minimax_m3,
    "ernie4_5_moe": moe.ernie45_moe,
    "deepseek_v2": deepseek.deepseek,
    "deepseek_v3": deepseek.deepseek,
    "kimi_k2": deepseek.deepseek,
    "glm4_moe_lite": deepseek.deepseek,
    "deepseek_v32": deepseek.deepseek_v32,
    "glm_moe_dsa": deepseek.glm_moe_dsa,
    "minicpm3": deepseek.minicpm3,
    "deepseek_v4": deepseek_v4.deepseek_v4,
    "kimi_linear": kimi.kimi_linear,
    "gpt_oss": gpt_oss.gpt_oss,
    "mimo": mimo.mimo,
    "mimo_v2_flash": mimo.mimo_v2_flash,
    "nemotron_h": nemotron.nemotron_h,
    "nemotron-nas": nemotron.nemotron_nas,
    "step3p7": step.step3,
    "step3p5": step.step3,
    "bailing_moe": bailing.bailing_moe,
    "bailing_moe_v2": bailing.bailing_moe,
}
"""Reader of each ``model_type``; ``--model-family`` names one of these."""

ALIASES = {
    # Configs that a serving project re-keyed for its own reference code; their architectures name DeepseekV4.
    "deepseek_ref": "deepseek_v4",
    "qwen2_5_vl_text": "qwen2",
    "qwen2_vl_text": "qwen2",
    "qwen3_vl_text": "qwen3",
    "qwen3_vl_moe_text": "qwen3_moe",
    "glm4v_text": "glm4",
    "glm4v_moe_text": "glm4_moe",
    "minimax_m3_vl_text": "minimax_m3",
}
"""Other names of families."""


@dataclass(frozen=True)
class Multimodal:
    """A config that wraps a language model of family ``text`` under ``text_key`` and a vision encoder.

    Without ``text`` the language model is of any family, its own ``model_type``. ``counted`` says whether the reference
    class, whose parameters are published, includes the encoder.
    """

    text: str | None
    vision: wrapper.VisionReader
    counted: bool = True
    text_key: str = "text_config"


MULTIMODAL: dict[str, Multimodal] = {
    "llama4": Multimodal("llama4_text", vision_encoders.llama4, counted=False),
    "gemma3": Multimodal("gemma3_text", vision_encoders.gemma3),
    "gemma4": Multimodal("gemma4_text", vision_encoders.gemma4),
    "qwen2_vl": Multimodal("qwen2", vision_encoders.qwen2_vl),
    "qwen2_5_vl": Multimodal("qwen2", vision_encoders.qwen2_5_vl),
    "qwen3_vl": Multimodal("qwen3", vision_encoders.qwen3_vl),
    "qwen3_vl_moe": Multimodal("qwen3_moe", vision_encoders.qwen3_vl),
    "qwen3_5": Multimodal("qwen3_5_text", vision_encoders.qwen3_vl, counted=False),
    "qwen3_5_moe": Multimodal("qwen3_5_moe_text", vision_encoders.qwen3_vl, counted=False),
    "glm4v": Multimodal("glm4", vision_encoders.glm4v),
    "glm4v_moe": Multimodal("glm4_moe", vision_encoders.glm4v),
    "internvl": Multimodal(None, internvl.native),
    "internvl_chat": Multimodal(None, internvl.chat, text_key="llm_config"),
    "kimi_k25": Multimodal("kimi_k2", vision_encoders.kimi_k25),
    "minimax_m3_vl": Multimodal("minimax_m3", vision_encoders.minimax_m3),
}
"""Multimodal ``model_type``s."""

REFUSED = {
    "kimi_k3": "its config names attention over residuals, an output gate of latent attention and projections around "
    "experts without their shapes; --model-family kimi_linear prices it without them",
    "mllama": "cross-attention layers over images are not modelled",
}
"""Known model types that cannot be described exactly, with what is missing."""


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
    if family is not None and family not in (*FAMILIES, *MULTIMODAL, *ALIASES):
        raise ModelingError(f"Unknown model family {family!r}: one of {_known()}.{did_you_mean(family, FAMILIES)}")
    if model_type in MULTIMODAL:
        return _multimodal(config, name, MULTIMODAL[model_type])
    if model_type in REFUSED:
        raise ModelingError(f"{where}: {model_type} is not modelled: {REFUSED[model_type]}.")
    reader = FAMILIES.get(ALIASES.get(model_type, model_type))
    if reader is None:
        raise ModelingError(
            f"{where}: model_type {model_type!r} is of no known family; its cost is not guessed. Known: {_known()}. "
            "If it has the structure of one of these, say so with --model-family."
        )
    nested = [key for key in ("text_config", "llm_config") if isinstance(values.get(key), dict)]
    if family is not None and nested:
        config = config.child(nested[0])
    return reader(config, name)


def _multimodal(config: Config, name: str, kind: Multimodal) -> ModelSpec:
    if kind.text is None:
        inner = config.child(kind.text_key)
        text_type = inner.text("model_type")
        reader = FAMILIES.get(ALIASES.get(text_type, text_type))
        if reader is None:
            inner.fail("model_type", f"a language model of a known family: {', '.join(sorted(FAMILIES))}")
    else:
        text_type = kind.text
        if config.has(kind.text_key):
            text_type = config.child(kind.text_key).text("model_type", kind.text)
        reader = FAMILIES.get(ALIASES.get(text_type, text_type)) or FAMILIES[kind.text]
    return wrapper.multimodal(config, name, reader, kind.vision, counted=kind.counted, text_key=kind.text_key)


def _known() -> str:
    return ", ".join(sorted((*FAMILIES, *MULTIMODAL)))
