"""Whole generations: steps, stages, collectives, memory, sweeps."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tensor_cast.devices import get_device
from tensor_cast.errors import ModelingError
from tensor_cast.models.diffusion.reader import load_pipeline
from tensor_cast.video_advice import what_would_fit
from tensor_cast.video_deployment import DitCache, VideoDeployment
from tensor_cast.video_estimate import VideoEstimate
from tensor_cast.video_simulator import simulate_video
from tensor_cast.video_workload import VideoWorkload

SMALL, PAIR = "Wan-AI/Wan2.1-T2V-1.3B-Diffusers", "Wan-AI/Wan2.2-T2V-A14B-Diffusers"
HUNYUAN = "hunyuanvideo-community/HunyuanVideo"
DEVICE = "TEST_DEVICE"
A2 = "ATLAS_800_A2_376T_64G"


def simulate(
    model: str = SMALL, device: str = DEVICE, stages: tuple[str, ...] = ("denoise",), **options: Any
) -> VideoEstimate:
    """480 x 832 x 81 in 10 steps unless told otherwise; options of the workload and of the deployment mixed."""
    size: dict[str, Any] = {"height": 480, "width": 832, "frame_num": 81, "sample_step": 10}
    fields = VideoWorkload.__dataclass_fields__
    workload = VideoWorkload(**{**size, **{k: v for k, v in options.items() if k in fields}})
    deployment = VideoDeployment(**{k: v for k, v in options.items() if k not in fields})
    return simulate_video(model, device=device, workload=workload, deployment=deployment, stages=stages)


def cautions(estimate: VideoEstimate) -> tuple[str, ...]:
    """Warnings but for what was never measured."""
    return tuple(message for message in estimate.warnings if "measure" not in message)


def test_a_generation_has_a_band_and_says_what_it_rests_on() -> None:
    measured, heir = simulate(device="H100", compile=True), simulate(device=A2, compile=True)
    for estimate in (measured, heir):
        assert -1.0 < float(estimate.error_low) < 0.0 < float(estimate.error_high)
    assert not measured.warnings
    assert any("rest on measurements of ATLAS_800_A3_752T_128G_DIE" in text for text in heir.warnings)


def test_the_whole_is_the_sum_of_its_runs() -> None:
    estimate = simulate(stages=("text", "denoise", "vae"), use_cfg=True)
    assert estimate.total_time_s == pytest.approx(sum(float(run.all_runs_s) for run in estimate.runs), rel=1e-12)
    assert sum(map(float, estimate.stage_times_s.values())) == pytest.approx(float(estimate.total_time_s), rel=1e-12)
    assert sum(map(float, estimate.categories.values())) == pytest.approx(float(estimate.total_time_s), rel=1e-12)
    assert sum(float(op.total_s) for op in estimate.ops) == pytest.approx(float(estimate.total_time_s), rel=1e-12)
    assert estimate.step_time_s * 10 == pytest.approx(float(estimate.stage_times_s["denoise"]))


def test_guidance_runs_two_forwards_a_step() -> None:
    one, two = simulate(sample_step=40), simulate(sample_step=40, use_cfg=True)
    assert (one.forwards, two.forwards) == (40, 80)
    split = simulate(sample_step=40, use_cfg=True, world_size=2, cfg_parallel=True)
    assert (split.forwards, split.parallel.ulysses) == (40, 1)
    assert [run.repeats for run in split.runs] == [40, 40]


def test_cfg_parallel_exchanges_predictions_once_a_step() -> None:
    estimate = simulate(use_cfg=True, world_size=8, ulysses_size=4, cfg_parallel=True)
    exchange = [one for one in estimate.collectives if one.part == "guidance"]
    # Both groups' predictions of 16 x 21 x 60 x 104 latents in 16 bits, among ranks 4 apart, in each of 10 steps.
    assert [(one.name, one.bytes, one.group_size, one.stride, one.count) for one in exchange] == [
        ("all_gather", 2 * 16 * 21 * 60 * 104 * 2, 2, 4, 10)
    ]


def test_ulysses_exchanges_around_attention() -> None:
    estimate = simulate(world_size=4, ulysses_size=4)
    found = {one.part: 0.0 for one in estimate.collectives}
    for one in estimate.collectives:
        found[one.part] += float(one.count)
    # Queries, keys, values before and the result after each of 30 blocks' self-attention in 10 steps.
    assert found == {"attention.before": 3 * 30 * 10, "attention.after": 30 * 10, "output": 10}
    # 32,760 tokens over 4 ranks, 1,536 wide, 16 bits.
    assert {one.bytes for one in estimate.collectives if one.name == "all_to_all"} == {8_190 * 1_536 * 2}


def test_two_denoisers_share_the_steps_and_both_stay() -> None:
    estimate = simulate(PAIR, A2, sample_step=28)
    assert {run.name: run.repeats for run in estimate.runs} == {"transformer": 9, "transformer_2": 19, "solver": 28}
    resident = {part.name: part.bytes for part in estimate.memory.components if part.resident}
    assert resident == {"transformer": 2 * 14_288_491_584, "transformer_2": 2 * 14_288_491_584}
    alone = simulate(PAIR, A2, sample_step=28, offload_inactive_expert=True)
    assert [part.name for part in alone.memory.components if part.resident] == ["transformer"]
    assert alone.memory.weights_bytes == estimate.memory.weights_bytes / 2
    assert alone.total_time_s == estimate.total_time_s


def test_the_shift_moves_the_boundary() -> None:
    estimate = simulate(PAIR, A2, sample_step=28, flow_shift=12.0)
    assert [float(run.repeats) for run in estimate.runs[:2]] == [18, 10]
    assert not cautions(estimate)


def test_one_step_is_of_high_noise_but_both_denoisers_are_there() -> None:
    estimate = simulate(PAIR, A2, sample_step=1)
    assert [run.name for run in estimate.runs] == ["transformer", "solver"]
    assert len([part for part in estimate.memory.components if part.name.startswith("transformer")]) == 2


def test_stages() -> None:
    whole = simulate(stages=("text", "denoise", "vae"))
    assert [run.name for run in whole.runs] == [
        "text_encoder", "transformer", "solver", "vae.decode", "vae.decode (next frames)"
    ]  # fmt: skip
    denoise = simulate(stages=("denoise",))
    assert list(denoise.stage_times_s) == ["denoise"]
    assert denoise.stage_times_s["denoise"] == pytest.approx(float(whole.stage_times_s["denoise"]), rel=1e-12)
    # Components of other stages are known but not on the device.
    resident = {part.name: part.resident for part in denoise.memory.components}
    assert resident == {"transformer": True, "text_encoder": False, "vae": False}
    with pytest.raises(ModelingError, match=r"Unknown stage 'vea'.*Did you mean vae"):
        simulate(stages=("vea",))


def test_a_given_image_goes_through_the_vae() -> None:
    estimate = simulate("Wan-AI/Wan2.2-I2V-A14B-Diffusers", A2, stages=("vae",))
    assert [run.name for run in estimate.runs if run.stage == "vae"] == [
        "vae.encode", "vae.encode (next frames)", "vae.decode", "vae.decode (next frames)"
    ]  # fmt: skip


def test_tiles_cost_time_and_save_memory() -> None:
    tiled, whole = (simulate(HUNYUAN, A2, stages=("vae",), vae_tiling=tiling) for tiling in (True, False))
    assert float(tiled.memory.activation_bytes["vae"]) < float(whole.memory.activation_bytes["vae"]) / 20
    flops = [sum(float(r.repeats * r.matrix_flops) for r in e.runs if r.stage == "vae") for e in (tiled, whole)]
    assert flops[0] != flops[1]


def test_cogvideox_holds_a_batch_of_frames_not_all() -> None:
    # 30 x 45 latents in a tile of 480 x 720 pixels; the last level has 128 channels of 9 frames, or of 8.
    sizes = {"height": 480, "width": 720, "stages": ("vae",)}
    short, long = (simulate("THUDM/CogVideoX-5b", A2, frame_num=frames, **sizes) for frames in (9, 49))
    assert long.memory.activation_bytes["vae"] == short.memory.activation_bytes["vae"]
    names = {run.name: run.repeats for run in long.runs if run.stage == "vae"}
    assert set(names) == {"vae.decode (tile)", "vae.decode (tile, next frames)"}
    assert names["vae.decode (tile, next frames)"] == 5 * names["vae.decode (tile)"]


def test_the_vae_may_have_a_dtype_of_its_own() -> None:
    half, single = (simulate(stages=("vae",), vae_dtype=dtype) for dtype in (None, "float32"))
    sizes = [{part.name: float(part.bytes) for part in e.memory.components} for e in (half, single)]
    assert sizes[1]["vae"] == 2 * sizes[0]["vae"]
    assert sizes[1]["transformer"] == sizes[0]["transformer"]
    assert float(single.memory.activation_bytes["vae"]) == 2 * float(half.memory.activation_bytes["vae"])
    assert single.stage_times_s["denoise"] == half.stage_times_s["denoise"]
    assert simulate(stages=("vae",), vae_dtype="bfloat16").total_time_s == half.total_time_s


def test_eager_mode_waits_for_the_host() -> None:
    # One second a launch is longer than any kernel here: each run takes as many seconds as it has kernels.
    slow = replace(get_device(DEVICE), host_launch_s=1.0)
    workload = VideoWorkload(height=480, width=832, frame_num=81, sample_step=10)
    eager, compiled = (
        simulate_video(SMALL, device=slow, workload=workload, deployment=VideoDeployment(compile=fused))
        for fused in (False, True)
    )
    for run in eager.runs:
        assert run.total_time_s == pytest.approx(sum(float(kernel.count) for kernel in run.kernels))
    assert eager.total_time_s == pytest.approx(sum(map(float, eager.categories.values())), rel=1e-12)
    assert eager.gaps_s > 0.9 * eager.total_time_s
    assert compiled.gaps_s == 0.0


def test_flash_attention_2_is_slower_on_hopper() -> None:
    newer, older = (simulate(device="H100", attention_backend=f"flash_attention{tail}") for tail in ("", "_2"))
    shares = [float(estimate.categories["FlashAttention"]) for estimate in (newer, older)]
    assert 1.5 * shares[0] < shares[1] < 2.0 * shares[0]
    assert float(older.total_time_s) - float(newer.total_time_s) == pytest.approx(shares[1] - shares[0])
    assert not any("FlashAttention-2" in warning for warning in cautions(older))


@pytest.mark.parametrize("device", ["A100", "ATLAS_800_A2_376T_64G"])
def test_where_flash_attention_2_is_priced_as_any_other_is_said(device: str) -> None:
    newer, older = (simulate(device=device, attention_backend=f"flash_attention{tail}") for tail in ("", "_2"))
    assert older.total_time_s == newer.total_time_s
    (warning,) = set(older.warnings) - set(newer.warnings)
    assert warning.endswith("has no costs of FlashAttention-2 apart: --attention-backend changes nothing.")


def test_the_step_cache_saves_what_it_leaves_out() -> None:
    # Steps 2 to 9 of 10 with an interval of 4: steps 2 and 6 keep, the six others reuse all 30 blocks.
    cache = DitCache(step_range=(2, 10), step_interval=4, block_range=(0, 30))
    estimate = simulate(dit_cache=cache)
    runs = {run.name: run for run in estimate.runs}
    assert {name: run.repeats for name, run in runs.items()} == {
        "transformer": 2, "transformer (refresh cache)": 2, "transformer (reuse cache)": 6, "solver": 10
    }  # fmt: skip
    reused = runs["transformer (reuse cache)"]
    assert float(reused.total_time_s) < 0.05 * float(runs["transformer"].total_time_s)
    # What is kept: 32,760 tokens of 1,536 in 16 bits.
    assert estimate.memory.step_cache_bytes == 32_760 * 1_536 * 2
    with pytest.raises(ModelingError, match="cache_block_range 0,31 goes beyond the 30 blocks"):
        simulate(dit_cache=DitCache(step_range=(0, 9), step_interval=2, block_range=(0, 31)))


def test_a_step_cache_after_the_last_step_is_told() -> None:
    late = DitCache(step_range=(10, 20), step_interval=2, block_range=(0, 30))
    estimate = simulate(dit_cache=late)
    assert [run.name for run in estimate.runs] == ["transformer", "solver"]
    assert estimate.warnings == ("The step cache's range begins at step 10, after the last: nothing is reused.",)
    assert simulate(dit_cache=late, sample_step=15).warnings == (
        "The step cache's range ends at 20, after the last step.",
    )


def test_what_changes_nothing_is_told() -> None:
    messages = simulate(flow_shift=5.0, offload_inactive_expert=True, vae_tiling=False).warnings
    assert [text.partition(": ")[2] for text in messages] == [
        "there is nothing to offload.", "the flow shift changes nothing.", "--no-vae-tiling changes nothing."
    ]  # fmt: skip
    assert cautions(simulate(HUNYUAN, A2, vae_tiling=False)) == ()


def test_sparse_attention_skips_whole_blocks() -> None:
    def pairs(**options: Any) -> float:
        estimate = simulate(**options)
        (op,) = [op for op in estimate.ops if op.part == "attention.core"]
        return float(op.op.pairs)  # type: ignore[attr-defined]

    dense = 32_760.0 * 32_760.0
    assert pairs() == dense
    sparse = {"attention_backend": "block_sparse_attention", "attention_block_size": 128}
    assert pairs(**sparse) == dense
    # 32,760 keys are 256 blocks, the last of 120; a quarter of them is 64 blocks.
    assert pairs(**sparse, attention_sparsity=0.75) == 32_760.0 * 64 * 128


def test_quantised_weights_take_a_byte_and_their_scales() -> None:
    plain, quantised = (
        simulate(quantize_linear=scheme).memory.weights_bytes for scheme in ("DISABLED", "W8A8_DYNAMIC")
    )
    # A block's linear layers: eight of 1,536 x 1,536, and 1,536 x 8,960 both ways; a float32 scale a column.
    weights = 30 * (8 * 1_536 * 1_536 + 2 * 1_536 * 8_960)
    scales = 30 * (8 * 1_536 + 8_960 + 1_536)
    assert plain - quantised == weights - 4 * scales


@given(
    heights=st.lists(st.integers(4, 48), min_size=1, max_size=3),
    steps=st.lists(st.integers(1, 60), min_size=1, max_size=3),
    frames=st.integers(0, 30),
)
@settings(max_examples=8, deadline=None)
def test_a_sweep_equals_single_runs(heights: list[int], steps: list[int], frames: int) -> None:
    options: dict[str, Any] = {
        "width": 832,
        "frame_num": 4 * frames + 1,
        "use_cfg": True,
        "dit_cache": DitCache(step_range=(3, 20), step_interval=3, block_range=(5, 25)),
        "stages": ("text", "denoise", "vae"),
        "device": A2,
    }
    tall, many = np.array(heights, float)[:, None] * 16, np.array(steps, float)
    sweep = simulate(PAIR, height=tall, sample_step=many, **options)
    shape = (len(heights), len(steps))
    for row, height in enumerate(heights):
        for column, step in enumerate(steps):
            single = simulate(PAIR, height=height * 16, sample_step=step, **options)
            for name in ("total_time_s", "step_time_s"):
                found = np.broadcast_to(getattr(sweep, name), shape)[row, column]
                assert found == pytest.approx(float(getattr(single, name)), rel=1e-12)
            used = np.broadcast_to(sweep.memory.used_bytes, shape)[row, column]
            assert used == pytest.approx(float(single.memory.used_bytes), rel=1e-12)
    json.dumps(sweep.to_dict(), allow_nan=False)


def test_more_steps_cost_proportionally() -> None:
    ten, forty = (float(simulate(sample_step=steps).total_time_s) for steps in (10, 40))
    assert forty == pytest.approx(4 * ten, rel=1e-12)


def test_strategies() -> None:
    with pytest.raises(ModelingError, match=r"A world size of 8 needs a strategy\. Recommended: --ulysses-size 8"):
        simulate(PAIR, A2, world_size=8)
    with pytest.raises(ModelingError, match="Recommended: --ulysses-size 4 --cfg-parallel"):
        simulate(PAIR, A2, world_size=8, use_cfg=True)
    with pytest.raises(ModelingError, match="--cfg-parallel splits the two forwards of --use-cfg"):
        simulate(world_size=2, cfg_parallel=True)
    with pytest.raises(ModelingError, match="--ulysses-size 4 is 4 ranks, but --world-size is 8"):
        simulate(PAIR, A2, world_size=8, ulysses_size=4)
    # 6 and 12 divide 12 heads; with guidance 8 = 2 x 4 does too.
    with pytest.raises(ModelingError, match=r"No Ulysses size for 7 ranks .* nearest --world-size with one is 6 or 12"):
        simulate(world_size=7)
    with pytest.raises(ModelingError, match="nearest --world-size with one is 6 or 8"):
        simulate(world_size=7, use_cfg=True)
    with pytest.raises(ModelingError, match="nearest --world-size with one is 12"):
        simulate(world_size=16)
    with pytest.raises(
        ModelingError, match=r"--ulysses-size 4 is 4 ranks, but --world-size is 1\. Give --world-size 4 too"
    ):
        simulate(ulysses_size=4)
    with pytest.raises(ModelingError, match="--cfg-parallel needs an even --world-size, got 3"):
        simulate(world_size=3, use_cfg=True, cfg_parallel=True)


def test_what_would_fit() -> None:
    # 57 GB of both denoisers and 11 GB of the text encoder are more than 64 GiB less what is reserved.
    estimate = simulate(PAIR, A2, stages=("text", "denoise", "vae"), use_cfg=True)
    tight = simulate_video(
        PAIR,
        device=A2,
        workload=estimate.workload,
        stages=("text", "denoise"),
        reserved_bytes=5e9,
    )
    assert not tight.fits
    flags = [remedy.flags for remedy in what_would_fit(tight)]
    assert "--offload-inactive-expert" in flags
    assert "--quantize-linear-action W8A8_DYNAMIC" in flags
    assert all(remedy.used_bytes <= tight.device.memory_bytes for remedy in what_would_fit(tight))


def test_every_ulysses_size_that_divides_the_heads_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    """CogVideoX-2B has 30 heads: 2, 3, 5 and 6 ranks share them out, 4 and 8 do not."""
    from tensor_cast import video_advice

    estimate = simulate("THUDM/CogVideoX-2b", A2, height=480, width=720, frame_num=49)
    monkeypatch.setattr(video_advice, "_used_bytes", lambda estimate, deployment: 1.0)
    flags = [remedy.flags for remedy in what_would_fit(estimate)]
    assert [text for text in flags if "--ulysses" in text] == [
        f"--world-size {ranks} --ulysses-size {ranks}" for ranks in (2, 3, 5, 6)
    ]


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"mxfp4_group_size": 16}, "--mxfp4-group-size belongs to MXFP4: DISABLED has no groups of weights."),
        ({"vae_tiling": False}, "never works in tiles: --no-vae-tiling changes nothing."),
    ],
)
def test_a_flag_that_changes_nothing_is_said(changes: dict[str, object], sentence: str) -> None:
    assert any(sentence in warning for warning in simulate(PAIR, A2, **changes).warnings)
    assert not any(sentence in warning for warning in simulate(PAIR, A2).warnings)


def test_unpriced_components_are_told() -> None:
    estimate = simulate(HUNYUAN, A2, stages=("text", "denoise"))
    assert any("Not priced, for want of a known config: text_encoder" in text for text in estimate.warnings)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"height": 0}, "height must be a whole number of at least 1"),
        ({"sample_step": 2.5}, "sample_step must be a whole number"),
        ({"height": [480, 720], "width": [832, 1280, 64]}, "do not broadcast"),
        ({"flow_shift": -1.0}, "flow_shift must be a number above 0"),
        ({"reference_images": 1}, "reference_images is given, but .* takes none"),
        ({"quantize_linear": "W9"}, "Unknown quantisation 'W9'"),
        ({"attention_backend": "sage"}, "Unknown attention_backend 'sage'"),
        ({"attention_sparsity": 0.5}, "only the attention backend block_sparse_attention"),
        ({"dtype": "int8"}, "is not one of hidden states"),
        ({"vae_dtype": "int8"}, "vae_dtype 'int8' is not one of hidden states"),
        ({"ulysses_size": 0}, "ulysses_size must be a whole number of at least 1"),
    ],
)
def test_bad_values(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ModelingError, match=message):
        simulate(**values)


def test_a_pipeline_may_be_given_as_structure() -> None:
    workload = VideoWorkload(height=480, width=832, frame_num=81)
    by_name, by_structure = (simulate_video(m, device=DEVICE, workload=workload) for m in (SMALL, load_pipeline(SMALL)))
    assert by_name.total_time_s == by_structure.total_time_s
