"""Reading pipelines, their tokens, and the sizes they refuse."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tensor_cast.errors import ModelingError
from tensor_cast.models.catalog import find
from tensor_cast.models.diffusion.denoiser import Latent, Patch
from tensor_cast.models.diffusion.facts import pipeline_facts, video_tokens
from tensor_cast.models.diffusion.pipeline import Pipeline
from tensor_cast.models.diffusion.reader import load_pipeline, makes_video, pipeline_ids
from tensor_cast.models.diffusion.wan import WanDenoiser
from tensor_cast.video_workload import VideoWorkload

WAN = "Wan-AI/Wan2.2-T2V-A14B-Diffusers"


def workload(height: Any, width: Any, frames: Any = 1, **more: Any) -> VideoWorkload:
    return VideoWorkload(height=height, width=width, frame_num=frames, **more)


@pytest.mark.parametrize(
    ("model", "size", "tokens"),
    [
        # (frames - 1) / 4 + 1 latent frames; sides / 8 / 2, or / 16 / 2 with the VAE of Wan2.2-TI2V-5B.
        (WAN, (480, 832, 81), 21 * 30 * 52),
        (WAN, (720, 1280, 81), 21 * 45 * 80),
        ("Wan-AI/Wan2.2-TI2V-5B-Diffusers", (704, 1280, 121), 31 * 22 * 40),
        ("hunyuanvideo-community/HunyuanVideo", (720, 1280, 129), 33 * 45 * 80),
        ("hunyuanvideo-community/HunyuanVideo", (544, 960, 129), 33 * 34 * 60),
        ("THUDM/CogVideoX-5b", (480, 720, 49), 17_776 - 226),
        ("Qwen/Qwen-Image", (1328, 1328, 1), 83 * 83),
        ("black-forest-labs/FLUX.1-dev", (1024, 1024, 1), 64 * 64),
        ("stabilityai/stable-diffusion-3.5-large", (1024, 1024, 1), 64 * 64),
    ],
)
def test_tokens(model: str, size: tuple[int, int, int], tokens: int) -> None:
    assert load_pipeline(model).video_tokens(workload(*size)) == tokens


def test_video_and_text_of_cogvideox_are_one_sequence() -> None:
    # 13 x 30 x 45 video tokens and 226 of text.
    tokens = video_tokens(load_pipeline("THUDM/CogVideoX-5b"), workload(480, 720, 49, seq_len=226), 1)
    assert tokens.video + tokens.text == 17_776


def test_tokens_under_another_compression() -> None:
    # LTX-Video's VAE folds 8 frames and 32 x 32 pixels into a position, each a token: 21 x 16 x 22 of 161 x 512 x 704.
    pipeline = load_pipeline("Wan-AI/Wan2.1-T2V-1.3B-Diffusers")
    assert isinstance(pipeline.denoiser, WanDenoiser)
    denoiser = replace(pipeline.denoiser, patch=Patch(1, 1, 1))
    other = replace(pipeline, temporal=8, spatial=32, denoisers=(("transformer", denoiser),))
    assert other.video_tokens(workload(512, 704, 161)) == 7_392
    with pytest.raises(ModelingError, match="frame_num 160 is not 8k \\+ 1: the nearest are 153 and 161"):
        other.check(workload(512, 704, 160))


def test_tokens_of_a_sweep() -> None:
    heights = np.array([480.0, 720.0])
    found = load_pipeline(WAN).video_tokens(workload(heights, np.array([832.0, 1280.0]), 81))
    assert np.asarray(found).tolist() == [32_760.0, 75_600.0]


def test_image_tokens_stand_beside_the_text() -> None:
    # CLIP's 16 x 16 + 1 tokens beside 512 of text; both frames' of FLF2V.
    tokens = video_tokens(load_pipeline("Wan-AI/Wan2.1-I2V-14B-480P-Diffusers"), workload(480, 832, 81, seq_len=512), 1)
    assert tokens.text == 769
    both = load_pipeline("Wan-AI/Wan2.1-FLF2V-14B-720P-Diffusers")
    assert video_tokens(both, workload(480, 832, 81, seq_len=512), 1).text == 512 + 2 * 257


def test_a_given_image_of_qwen_image_edit_takes_its_own_tokens() -> None:
    # 1024 x 1024 stays as it is: 64 x 64 tokens beside the output's own, and 37 x 37 of 28 pixels a side in the prompt.
    pipeline = load_pipeline("Qwen/Qwen-Image-Edit")
    tokens = video_tokens(pipeline, workload(1024, 1024), 1)
    assert (tokens.video, tokens.text, tokens.per_rank) == (4_096, 64 + 37 * 37, 8_192)
    twice = video_tokens(pipeline, workload(1024, 1024, reference_images=2), 8)
    assert (twice.text, twice.per_rank) == (64 + 2 * 37 * 37, 3 * 4_096 / 8)
    # 512 x 1024 pixels are edited at 736 x 1440 (724 x 1448 in multiples of 32): 46 x 90 tokens, 26 x 51 in the prompt.
    wide = video_tokens(pipeline, workload(512, 1024), 1)
    assert (wide.video, wide.text, wide.per_rank) == (32 * 64, 64 + 26 * 51, 32 * 64 + 46 * 90)


@pytest.mark.parametrize("version", ["2509", "2511"])
def test_later_editing_models_see_smaller_images_in_the_prompt(version: str) -> None:
    # 384 x 384 pixels are 14 x 14 tokens of 28 pixels a side.
    tokens = video_tokens(load_pipeline(f"Qwen/Qwen-Image-Edit-{version}"), workload(1024, 1024, reference_images=3), 1)
    assert (tokens.text, tokens.per_rank) == (64 + 3 * 14 * 14, 4 * 4_096)


def test_the_vision_tower_is_said_not_to_be_priced() -> None:
    assert "vision tower" in load_pipeline("Qwen/Qwen-Image-Edit").notes[0]
    assert load_pipeline("Qwen/Qwen-Image").notes == ()


@pytest.mark.parametrize("model", ["stable-diffusion-3-medium-diffusers", "stable-diffusion-3.5-large"])
def test_clip_tokens_stand_before_those_of_t5(model: str) -> None:
    tokens = video_tokens(load_pipeline(f"stabilityai/{model}"), workload(1024, 1024, seq_len=256), 1)
    assert tokens.text == 77 + 256


@pytest.mark.parametrize(
    ("model", "given"),
    [
        # Wan encodes the given frame in a blank video of all frames, CogVideoX alone, TI2V-5B (of text here) nothing.
        ("Wan-AI/Wan2.2-I2V-A14B-Diffusers", [(Latent(3.0, 60.0, 90.0), 1.0)]),
        ("THUDM/CogVideoX-5b-I2V", [(Latent(1.0, 60.0, 90.0), 1.0)]),
        ("Wan-AI/Wan2.2-TI2V-5B-Diffusers", []),
        ("THUDM/CogVideoX-5b", []),
    ],
)
def test_what_is_given_goes_through_the_vae(model: str, given: list[tuple[Latent, float]]) -> None:
    assert load_pipeline(model).given_latents(workload(480, 720, 9)) == given


def test_a_directory_of_wan_22_5b_that_takes_an_image_encodes_it_alone(tmp_path: Path) -> None:
    directory = write(tmp_path, model_index={"_class_name": "WanImageToVideoPipeline", "expand_timesteps": True})
    assert load_pipeline(str(directory)).encodes == "image"


def test_tokens_that_ulysses_does_not_divide_are_padded() -> None:
    # 3 x 5 x 6 = 90 tokens of 9 x 80 x 96 pixels over 4 ranks: 23 each.
    tokens = video_tokens(load_pipeline("Wan-AI/Wan2.1-T2V-1.3B-Diffusers"), workload(80, 96, 9), 4)
    assert (tokens.video, tokens.per_rank) == (90, 23)


def test_sizes_that_do_not_divide_are_refused_with_the_nearest() -> None:
    with pytest.raises(ModelingError) as caught:
        load_pipeline(WAN).check(workload(486, 838, 80))
    message = str(caught.value)
    assert "height 486 is not a multiple of 16 (VAE 8 x patch 2): the nearest are 480 and 496" in message
    assert "width 838 is not a multiple of 16 (VAE 8 x patch 2): the nearest are 832 and 848" in message
    assert "frame_num 80 is not 4k + 1: the nearest are 77 and 81" in message


def test_one_bad_point_of_a_sweep_is_named() -> None:
    with pytest.raises(ModelingError, match="height 481 is not a multiple of 16"):
        load_pipeline(WAN).check(workload(np.array([480.0, 481.0]), 832, 81))


@pytest.mark.parametrize(
    ("model", "ranks", "nearest"),
    [
        (WAN, 16, "the 40 attention heads of .*: the nearest that do are 10 and 20"),
        ("Wan-AI/Wan2.1-T2V-1.3B-Diffusers", 8, "the 12 attention heads of .*: the nearest that do are 6 and 12"),
        ("Wan-AI/Wan2.1-T2V-1.3B-Diffusers", 16, "the nearest that does is 12"),
    ],
)
def test_ulysses_sizes_that_do_not_divide_the_heads(model: str, ranks: int, nearest: str) -> None:
    with pytest.raises(ModelingError, match=nearest):
        load_pipeline(model).check_ulysses(ranks)


@pytest.mark.parametrize(("model", "valid"), [(WAN, [2, 4, 8]), ("Wan-AI/Wan2.1-T2V-1.3B-Diffusers", [2, 4])])
def test_valid_ulysses_sizes(model: str, valid: list[int]) -> None:
    def accepted(ranks: int) -> bool:
        try:
            load_pipeline(model).check_ulysses(ranks)
        except ModelingError:
            return False
        return True

    assert [ranks for ranks in (2, 4, 8, 16) if accepted(ranks)] == valid


def test_images_have_one_frame() -> None:
    with pytest.raises(ModelingError, match="frame_num is given, but it makes images"):
        load_pipeline("Qwen/Qwen-Image").check(workload(1024, 1024, 5))


def test_every_pipeline_of_a_known_family_reads() -> None:
    for model in pipeline_ids():
        pipeline = load_pipeline(model)
        assert pipeline.makes_video == makes_video(model)
        assert pipeline.ignored_keys == ()


def test_short_names() -> None:
    assert load_pipeline("wan2.2 t2v-14b").name == WAN
    assert load_pipeline("Wan2.2_T2V_A14B").name == WAN
    with pytest.raises(ModelingError, match=r"part of several: use one of .*Wan2\.1-T2V-1\.3B.*Wan2\.1-T2V-14B"):
        load_pipeline("wan2.1 t2v")
    with pytest.raises(ModelingError, match=rf"'wan2\.2-t2v' is no model's name, but part of one: use {WAN}\."):
        load_pipeline("wan2.2-t2v")


def test_a_language_model_is_no_pipeline() -> None:
    with pytest.raises(ModelingError, match="is not a diffusion pipeline"):
        load_pipeline("Qwen/Qwen3-8B")


def test_an_unknown_family_is_not_guessed() -> None:
    with pytest.raises(ModelingError, match="MochiTransformer3DModel' is of no known family"):
        load_pipeline("genmo/mochi-1-preview")


def write(directory: Path, **changes: Any) -> Path:
    """A Wan 2.2 pipeline as a diffusers directory."""
    entry = find(WAN)
    assert entry is not None
    assert entry.pipeline is not None
    for name, config in entry.pipeline.items():
        values = {**config, **changes.get(name, {})}
        inside = {"model_index": "model_index.json", "scheduler": "scheduler/scheduler_config.json"}
        file = directory / inside.get(name, f"{name}/config.json")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(values), encoding="utf-8")
    return directory


def test_a_directory_reads_as_the_catalog_does(tmp_path: Path) -> None:
    local, known = load_pipeline(str(write(tmp_path / "a b 模型"))), load_pipeline(WAN)
    assert (local.denoisers, local.vae, local.text_encoders) == (known.denoisers, known.vae, known.text_encoders)


def test_the_scheduler_of_a_directory_gives_the_shift(tmp_path: Path) -> None:
    directory = write(tmp_path, scheduler={"flow_shift": 12.0})
    told = load_pipeline(str(directory))
    assert (told.flow_shift, told.notes) == (12.0, ())
    (directory / "scheduler" / "scheduler_config.json").unlink()
    assumed = load_pipeline(str(directory))
    assert assumed.flow_shift == 3.0
    assert "--flow-shift" in assumed.notes[0]


def test_the_catalog_knows_the_shift_of_two_denoisers() -> None:
    for model in (WAN, "Wan-AI/Wan2.2-I2V-A14B-Diffusers"):
        known = load_pipeline(model)
        assert (known.flow_shift, known.notes) == (3.0, ())


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"transformer": {"num_layers": None}}, ""),
        ({"transformer": {"num_layers": "forty"}}, r"\$\.num_layers is 'forty'"),
        ({"transformer": {"num_layers": 10**9}}, r"\$\.num_layers is 1000000000, .* at most 10,000"),
        ({"vae": {"num_res_blocks": 10**9}}, r"\$\.num_res_blocks is 1000000000, .* at most 10,000"),
        ({"transformer": {"num_attention_heads": 0}}, r"\$\.num_attention_heads is 0"),
        ({"transformer": {"patch_size": [1, 2]}}, r"\$\.patch_size is \[1, 2\], expected a list of 3 whole numbers"),
        ({"transformer": {"patch_size": [1, 2, "2"]}}, r"\$\.patch_size is \[1, 2, '2'\]"),
        ({"transformer": {"patch_size": [0, 2, 2]}}, r"\$\.patch_size is \[0, 2, 2\]"),
        ({"transformer": {"image_dim": 1280}}, "added_kv_proj_dim None and image_dim 1280 contradict"),
        ({"transformer": {"qk_norm": None}}, ""),
        ({"vae": {"temperal_downsample": [True]}}, r"\$\.temperal_downsample"),
        ({"vae": {"dim_mult": [1, 2, 4, "4"]}}, r"\$\.dim_mult is \[1, 2, 4, '4'\]"),
        ({"vae": {"dim_mult": []}}, r"\$\.dim_mult is \[\]"),
        ({"vae": {"scale_factor_temporal": 8}}, r"\$\.scale_factor_temporal is 8, expected 4"),
        ({"vae": {"_class_name": "AutoencoderDC"}}, "'AutoencoderDC' is of no known family"),
        ({"model_index": {"boundary_ratio": 1.5}}, r"\$\.boundary_ratio is 1\.5"),
        ({"model_index": {"_class_name": "WanVideoToVideoPipeline"}}, "'WanVideoToVideoPipeline' does beside running"),
        ({"text_encoder": {"d_model": []}}, ""),
    ],
)
def test_malformed_configs(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    directory = write(tmp_path, **changes)
    if not message:
        # null is absent, and a text encoder that cannot be read is only not priced.
        assert isinstance(load_pipeline(str(directory)), Pipeline)
        return
    with pytest.raises(ModelingError, match=message):
        load_pipeline(str(directory))


def test_another_pipeline_of_a_known_transformer_is_not_guessed(tmp_path: Path) -> None:
    """FLUX.1 Kontext has FLUX.1's transformer and twice its tokens: the given image's come beside the output's."""
    entry = find("black-forest-labs/FLUX.1-dev")
    assert entry is not None
    assert entry.pipeline is not None
    directory = tmp_path / "kontext"
    (directory / "transformer").mkdir(parents=True)
    index = {"_class_name": "FluxKontextPipeline", "transformer": ["diffusers", "FluxTransformer2DModel"]}
    (directory / "model_index.json").write_text(json.dumps(index), encoding="utf-8")
    (directory / "transformer" / "config.json").write_text(json.dumps(entry.pipeline["transformer"]), encoding="utf-8")
    with pytest.raises(ModelingError, match=r"the pipeline class 'FluxKontextPipeline' .* is not guessed\. Known: Cog"):
        load_pipeline(str(directory))


def test_an_index_without_a_class_is_said(tmp_path: Path) -> None:
    directory = write(tmp_path, model_index={"_class_name": None})
    assert "names no pipeline class: taken as one from text to video." in load_pipeline(str(directory)).notes[0]


def test_every_pipeline_of_the_catalog_is_known() -> None:
    for model in pipeline_ids():
        assert load_pipeline(model).kind, model


@pytest.mark.parametrize("name", ["transformer", "transformer_2"])
def test_a_denoiser_without_a_config_is_missed(tmp_path: Path, name: str) -> None:
    listed = {part: ["diffusers", "WanTransformer3DModel"] for part in ("transformer", "transformer_2")}
    directory = write(tmp_path, model_index=listed)
    (directory / name / "config.json").unlink()
    with pytest.raises(ModelingError, match=rf"names a {name}, but there is no {name}/config\.json"):
        load_pipeline(str(directory))


def test_a_misread_text_encoder_is_named(tmp_path: Path) -> None:
    directory = write(tmp_path, text_encoder={"model_type": "t6"})
    assert load_pipeline(str(directory)).unpriced == ("text_encoder",)


def test_unknown_keys_are_told(tmp_path: Path) -> None:
    directory = write(tmp_path, transformer={"number_of_experts": 8})
    assert load_pipeline(str(directory)).ignored_keys == ("transformer.number_of_experts",)


def test_facts() -> None:
    facts = pipeline_facts(load_pipeline(WAN), workload(480, 832, 81, seq_len=512), ulysses=4).to_dict()
    assert facts["parameters"]["transformer"] == facts["parameters"]["transformer_2"] == 14_288_491_584
    assert facts["parameters"]["text_encoder"] == 5_680_910_336
    assert facts["parameters"]["vae"] == 126_892_531
    assert facts["vae"]["decoder_parameters"] == 73_295_331
    # Both experts in 16 bits: 57.15 GB.
    assert facts["weight_bytes"]["transformer"] + facts["weight_bytes"]["transformer_2"] == 57_153_966_336
    assert facts["tokens"] == {"video": 32_760.0, "text": 512.0, "per_rank": 8_190.0}
    assert facts["flops_per_forward"] == pytest.approx(1.678e15, rel=1e-3)
    json.dumps(facts, allow_nan=False)


def test_numbers_in_messages_are_whole() -> None:
    with pytest.raises(ModelingError) as caught:
        load_pipeline(WAN).check(workload(8, 832, 81))
    assert re.search(r"height 8 is not a multiple of 16 .*: the nearest is 16", str(caught.value))
