"""A diffusers directory's configs -> ``Pipeline``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from tensor_cast.errors import ModelingError
from tensor_cast.models import catalog
from tensor_cast.models.config import Config
from tensor_cast.models.diffusion.cogvideox import cogvideox
from tensor_cast.models.diffusion.denoiser import Denoiser
from tensor_cast.models.diffusion.hunyuan_video import hunyuan_video, hunyuan_video_15
from tensor_cast.models.diffusion.image_models import flux, qwen_image, sd3
from tensor_cast.models.diffusion.known_keys import HARMLESS
from tensor_cast.models.diffusion.pipeline import Pipeline
from tensor_cast.models.diffusion.references import References
from tensor_cast.models.diffusion.text_encoders import TextEncoder, text_encoder
from tensor_cast.models.diffusion.vae import Vae
from tensor_cast.models.diffusion.vae_cogvideox import cogvideox_vae
from tensor_cast.models.diffusion.vae_hunyuan15 import hunyuan15_vae
from tensor_cast.models.diffusion.vae_kl import hunyuan_vae, image_vae
from tensor_cast.models.diffusion.vae_wan import wan_vae
from tensor_cast.models.diffusion.wan import WanDenoiser, wan
from tensor_cast.models.source import LoadedConfig, load_config

DENOISERS: dict[str, Callable[[Config], Denoiser]] = {
    "CogVideoXTransformer3DModel": cogvideox,
    "FluxTransformer2DModel": flux,
    "HunyuanVideo15Transformer3DModel": hunyuan_video_15,
    "HunyuanVideoTransformer3DModel": hunyuan_video,
    "QwenImageTransformer2DModel": qwen_image,
    "SD3Transformer2DModel": sd3,
    "WanTransformer3DModel": wan,
}
"""Reader of each transformer class."""

VAES: dict[str, Callable[[Config], Vae]] = {
    "AutoencoderKL": image_vae,
    "AutoencoderKLCogVideoX": cogvideox_vae,
    "AutoencoderKLHunyuanVideo": hunyuan_vae,
    "AutoencoderKLHunyuanVideo15": hunyuan15_vae,
    "AutoencoderKLQwenImage": wan_vae,
    "AutoencoderKLWan": wan_vae,
}
"""Reader of each autoencoder class."""

VIDEO_CLASSES = frozenset(
    [
        "CogVideoXTransformer3DModel",
        "HunyuanVideo15Transformer3DModel",
        "HunyuanVideoTransformer3DModel",
        "WanTransformer3DModel",
    ]
)
"""Classes that make videos; the others make images, whatever their VAE could do with frames."""

PIPELINES = frozenset(
    [
        "CogVideoXImageToVideoPipeline",
        "CogVideoXPipeline",
        "FluxPipeline",
        "HunyuanVideo15ImageToVideoPipeline",
        "HunyuanVideo15Pipeline",
        "HunyuanVideoPipeline",
        "QwenImageEditPipeline",
        "QwenImageEditPlusPipeline",
        "QwenImagePipeline",
        "StableDiffusion3Pipeline",
        "WanImageToVideoPipeline",
        "WanPipeline",
    ]
)
"""Pipelines whose inputs are known. Others feed the same transformers more: FluxKontextPipeline a given image's tokens
beside those of the output, video-to-video pipelines the whole video through the VAE and then fewer steps."""

TRANSFORMERS = ("transformer", "transformer_2")
"""Directories of denoisers, in the order that they run."""

COMPRESSION = {
    "CogVideoXTransformer3DModel": (4, 8),
    "FluxTransformer2DModel": (1, 8),
    "HunyuanVideo15Transformer3DModel": (4, 16),
    "HunyuanVideoTransformer3DModel": (4, 8),
    "QwenImageTransformer2DModel": (4, 8),
    "SD3Transformer2DModel": (1, 8),
    "WanTransformer3DModel": (4, 8),
}
"""Temporal and spatial compression of the VAE that each class was trained with, where its config is not there."""

DEFAULT_FLOW_SHIFT = 3.0
"""Shift that Wan2.2-A14B's scheduler has in its diffusers form; Wan's own code uses 12 (T2V) and 5 (I2V)."""


@dataclass(frozen=True)
class _Read:
    """Components read so far, with what could not be."""

    unpriced: list[str]
    ignored: list[str]


def load_pipeline(model: str, *, remote_source: str = "huggingface") -> Pipeline:
    """The structure of a diffusion pipeline by catalog id, directory or hub id.

    Raises:
        ModelingError: it is not found, is no diffusion pipeline, or its configs cannot be used.
    """
    _refuse_part_of_a_name(model)
    return read_pipeline(load_config(model, remote_source=remote_source))


def pipeline_ids() -> list[str]:
    """Catalog ids of the pipelines whose family is known."""
    found = []
    for model_id in catalog.catalog_ids():
        entry = catalog.find(model_id)
        components = entry.pipeline if entry is not None else None
        if components and components.get("transformer", {}).get("_class_name") in DENOISERS:
            found.append(model_id)
    return found


def makes_video(model_id: str) -> bool:
    """Whether the pipeline of a catalog id makes videos."""
    entry = catalog.find(model_id)
    components = (entry.pipeline if entry is not None else None) or {}
    return components.get("transformer", {}).get("_class_name") in VIDEO_CLASSES


def _refuse_part_of_a_name(model: str) -> None:
    """List the pipelines whose ids have all words of a name that is neither an id, nor an alias, nor a path."""
    if "/" in model or Path(model).exists() or catalog.find(model) is not None:
        return
    known = pipeline_ids()
    fitting = [model_id for model_id in catalog.ids_with_words(model) if model_id in known]
    if fitting:
        those = f"one: use {fitting[0]}" if len(fitting) == 1 else f"several: use one of {', '.join(fitting)}"
        raise ModelingError(f"{model!r} is no model's name, but part of {those}.")


def read_pipeline(loaded: LoadedConfig) -> Pipeline:
    """The structure that a pipeline's configs describe.

    Raises:
        ModelingError: a class is of no known family, or a config is malformed.
    """
    components = loaded.pipeline
    if components is None:
        raise ModelingError(
            f"{loaded.name} is not a diffusion pipeline (it has no model_index.json): "
            "use `msmodeling text-generate` for a language model."
        )
    index = Config(loaded.config, where=f"{loaded.name}/model_index.json")
    for name in TRANSFORMERS:
        if _is_listed(index, name) and name not in components:
            raise ModelingError(f"{index.where} names a {name}, but there is no {name}/config.json: add it.")
    names = [name for name in TRANSFORMERS if name in components]
    if not names:
        raise ModelingError(f"{loaded.name} has no transformer: only diffusion transformers are modelled.")
    read = _Read([], [])
    expands = index.boolean("expand_timesteps", False)
    first_class = str(components[names[0]].get("_class_name"))
    kind = index.text("_class_name", "")
    if kind and kind not in PIPELINES and first_class in DENOISERS:
        raise ModelingError(
            f"{index.where}: what the pipeline class {kind!r} does beside running its transformer is not known, and "
            f"its cost is not guessed. Known: {', '.join(sorted(PIPELINES))}."
        )
    denoisers = tuple((name, _denoiser(loaded.name, name, components[name], expands, read)) for name in names)
    vae = _vae(loaded.name, components.get("vae"), read)
    encoders = tuple(_text_encoders(loaded.name, components, read))
    _expected_but_absent(loaded, index, denoisers[0][1], read)
    temporal, spatial = (vae.temporal, vae.spatial) if vae is not None else COMPRESSION[first_class]
    pipeline = Pipeline(
        name=loaded.name,
        kind=kind,
        denoisers=denoisers,
        text_encoders=encoders,
        vae=vae,
        temporal=temporal,
        spatial=spatial,
        makes_video=first_class in VIDEO_CLASSES,
        encodes=_encodes(kind, first_class, expands),
        references=_references(kind),
        origin=f"{loaded.origin}: {loaded.source}",
        unpriced=tuple(read.unpriced),
        ignored_keys=tuple(read.ignored),
    )
    if not kind:
        made = "video" if pipeline.makes_video else "image"
        pipeline = pipeline.with_note(f"{index.where} names no pipeline class: taken as one from text to {made}.")
    if pipeline.references is not None:
        pipeline = pipeline.with_note("What the text encoder's vision tower takes for given images is not priced.")
    return pipeline if len(denoisers) == 1 else _with_boundary(pipeline, index, loaded)


def _denoiser(model: str, name: str, values: dict[str, Any], expands: bool, read: _Read) -> Denoiser:
    config = Config(values, where=f"{model}/{name}/config.json")
    found = config.text("_class_name", "")
    if found not in DENOISERS:
        raise ModelingError(
            f"{config.where}: the transformer class {found!r} is of no known family; its cost is not guessed. "
            f"Known: {', '.join(DENOISERS)}."
        )
    denoiser = wan(config, token_timesteps=expands) if found == "WanTransformer3DModel" else DENOISERS[found](config)
    _note_ignored(config, name, read)
    return denoiser


def _vae(model: str, values: dict[str, Any] | None, read: _Read) -> Vae | None:
    if values is None:
        read.unpriced.append("vae")
        return None
    config = Config(values, where=f"{model}/vae/config.json")
    found = config.text("_class_name", "")
    if found not in VAES:
        raise ModelingError(
            f"{config.where}: the autoencoder class {found!r} is of no known family. Known: {', '.join(VAES)}."
        )
    vae = VAES[found](config)
    _note_ignored(config, "vae", read)
    return vae


def _text_encoders(model: str, components: dict[str, dict[str, Any]], read: _Read) -> list[tuple[str, TextEncoder]]:
    found = []
    for name in sorted(name for name in components if name.startswith("text_encoder")):
        config = Config(components[name], where=f"{model}/{name}/config.json")
        try:
            found.append((name, text_encoder(config)))
        except ModelingError:
            read.unpriced.append(name)
            continue
        if config.text("model_type") in ("t5", "umt5", "clip_text_model"):
            _note_ignored(config, name, read)
    return found


def _expected_but_absent(loaded: LoadedConfig, index: Config, denoiser: Denoiser, read: _Read) -> None:
    """Name the weighty parts that the index lists, or every such pipeline has, without a config here."""
    components = loaded.pipeline or {}
    for name in index.values:
        if name.startswith(("text_encoder", "image_encoder")) and _is_listed(index, name) and name not in components:
            read.unpriced.append(name)
    if not any(name.startswith("text_encoder") for name in (*components, *read.unpriced)):
        read.unpriced.append("text_encoder")
    takes_image = isinstance(denoiser, WanDenoiser) and denoiser.image_tokens > 0
    if ("image_encoder" in components or takes_image) and "image_encoder" not in read.unpriced:
        read.unpriced.append("image_encoder")


def _encodes(kind: str, denoiser_class: str, expands: bool) -> Literal["image", "video"] | None:
    """How a given first frame goes through the VAE; Wan 2.1 and 2.2 A14B encode it in a video that is blank else."""
    if "ImageToVideo" not in kind:
        return None
    return "video" if denoiser_class == "WanTransformer3DModel" and not expands else "image"


def _references(kind: str) -> References | None:
    """Images that a pipeline edits; the later versions (EditPlus) show smaller ones to the text encoder."""
    if "Edit" not in kind:
        return None
    return References(prompt_area=384 * 384 if "EditPlus" in kind else 1024 * 1024)


def _is_listed(index: Config, name: str) -> bool:
    """Whether a pipeline has a component: ``"vae": ["diffusers", "AutoencoderKLWan"]``, not ``[null, null]``."""
    value = index.values.get(name)
    return isinstance(value, list) and any(value)


def _note_ignored(config: Config, name: str, read: _Read) -> None:
    read.ignored.extend(f"{name}.{key}" for key in config.ignored() if key not in HARMLESS)


def _with_boundary(pipeline: Pipeline, index: Config, loaded: LoadedConfig) -> Pipeline:
    """Two denoisers need the boundary between them and the shift of the schedule."""
    boundary = index.number("boundary_ratio")
    if not 0.0 < boundary < 1.0:
        index.fail("boundary_ratio", "a number between 0 and 1")
    shift = _scheduler_shift(loaded)
    pipeline = replace(pipeline, boundary_ratio=boundary, flow_shift=shift or DEFAULT_FLOW_SHIFT)
    if shift is None:
        pipeline = pipeline.with_note(
            f"The configs name no flow shift: {DEFAULT_FLOW_SHIFT:g} is assumed, as in Wan2.2's diffusers form, to "
            "share out the steps between the two denoisers (--flow-shift); their forwards cost the same."
        )
    return pipeline


def _scheduler_shift(loaded: LoadedConfig) -> float | None:
    """Flow shift of the pipeline's scheduler, where its config is known."""
    values = (loaded.pipeline or {}).get("scheduler")
    if values is None:
        return None
    config = Config(values, where=f"{loaded.name}/scheduler/scheduler_config.json")
    key = "flow_shift" if config.has("flow_shift") else "shift"
    return config.number(key) if config.has(key) else None
