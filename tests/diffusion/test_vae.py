"""Autoencoders: parameters and FLOPs equal those of the reference classes (diffusers 0.36, meta device)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tensor_cast.errors import ModelingError
from tensor_cast.models.catalog import find
from tensor_cast.models.config import Config
from tensor_cast.models.diffusion.counts import matrix_flops, vae_graph, vae_parameters
from tensor_cast.models.diffusion.denoiser import Latent
from tensor_cast.models.diffusion.reader import VAES
from tensor_cast.models.diffusion.vae import Pass, TileAxis, Vae

WAN21, WAN22 = "Wan-AI/Wan2.1-T2V-14B-Diffusers", "Wan-AI/Wan2.2-TI2V-5B-Diffusers"
HUNYUAN, COG = "hunyuanvideo-community/HunyuanVideo", "THUDM/CogVideoX-5b"
HUNYUAN15 = "hunyuanvideo-community/HunyuanVideo-1.5-Diffusers-480p_t2v"
FLUX, QWEN = "black-forest-labs/FLUX.1-dev", "Qwen/Qwen-Image"

# All of it, and the decoder without the convolution between latent and decoder.
PARAMETERS = {
    WAN21: (126_892_531, 73_295_331),
    WAN22: (704_688_668, 555_049_228),
    HUNYUAN: (246_478_803, 146_136_067),
    HUNYUAN15: (1_260_634_115, 871_309_571),
    COG: (215_583_907, 123_368_451),
    FLUX: (83_819_683, 49_545_475),
    QWEN: (126_892_531, 73_295_331),
}
# FLOPs of encoding and decoding 64 x 96 pixels untiled, by frames.
FLOPS = {
    (WAN21, 9): (286_842_617_856, 481_162_051_584),
    (WAN21, 1): (40_913_928_192, 66_050_899_968),
    (WAN22, 9): (200_114_356_224, 1_044_054_872_064),
    (HUNYUAN, 9): (521_346_809_856, 999_721_943_040),
    (HUNYUAN15, 9): (794_976_583_680, 1_423_365_636_096),
    (COG, 9): (512_154_402_816, 1_044_491_796_480),
    (FLUX, 1): (25_406_472_192, 58_158_219_264),
    (QWEN, 1): (40_913_928_192, 66_050_899_968),
}


def vae(model: str) -> Vae:
    entry = find(model)
    assert entry is not None
    assert entry.pipeline is not None
    config = entry.pipeline["vae"]
    return VAES[config["_class_name"]](Config(config, where=model))


@pytest.mark.parametrize(
    ("model", "key", "value", "expected"),
    [
        (COG, "block_out_channels", ["128"], "a list of whole numbers of at least 1"),
        (COG, "temporal_compression_ratio", 3, "a power of two of at most 8"),
        (COG, "temporal_compression_ratio", 0, "a whole number of at least 1"),
        (COG, "sample_height", 1, "a whole number of at least 32"),
        (HUNYUAN, "spatial_compression_ratio", 12, "a power of two of at most 8"),
        (HUNYUAN, "temporal_compression_ratio", 16, "a power of two of at most 8"),
        (HUNYUAN15, "block_out_channels", [128, 256, 512, 1024, None], "a list of whole numbers of at least 1"),
        (HUNYUAN15, "temporal_compression_ratio", 5, "a power of two of at most 16"),
    ],
)
def test_malformed_configs(model: str, key: str, value: object, expected: str) -> None:
    entry = find(model)
    assert entry is not None
    assert entry.pipeline is not None
    config = {**entry.pipeline["vae"], key: value}
    with pytest.raises(ModelingError, match=rf"\$\.{key} is .*expected {expected}"):
        VAES[config["_class_name"]](Config(config, where=model))


def flops(model: Vae, run: Pass, *, decode: bool, fused: bool = False) -> float:
    return float(matrix_flops(vae_graph(model, run, decode=decode, batch=1.0, dtype="bfloat16", fused=fused)))


@pytest.mark.parametrize("model", PARAMETERS)
def test_parameters_equal_the_reference_class(model: str) -> None:
    total, decoder = PARAMETERS[model]
    counted = vae_parameters(vae(model))
    assert (counted.total, counted.decoder) == (total, decoder)


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize(("model", "frames"), FLOPS)
def test_flops_equal_the_reference_class(model: str, frames: int, fused: bool) -> None:
    found = vae(model)
    passes = found.passes(Latent((frames - 1) / found.temporal + 1, 64 / found.spatial, 96 / found.spatial))
    for decode in (False, True):
        total = sum(float(run.count) * flops(found, run, decode=decode, fused=fused) for run in passes)
        assert total == FLOPS[model, frames][decode]


def test_one_convolution_by_hand() -> None:
    # Wan's output convolution: 27 x 96 inputs to 3 channels at each of 64 x 96 positions of one frame.
    run = vae(WAN21).passes(Latent(1.0, 8.0, 12.0))[0]
    graph = vae_graph(vae(WAN21), run, decode=True, batch=1.0, dtype="bfloat16", fused=False)
    last = [node.op for _, node in graph.nodes() if node.op.part == "decoder.output"]
    assert [op.matrix_flops for op in last if op.name == "conv3d"] == [2 * 64 * 96 * 27 * 96 * 3]


def test_wan_decodes_frame_by_frame_and_keeps_memory_flat() -> None:
    found = vae(WAN21)
    first, rest = found.passes(Latent(21.0, 60.0, 104.0))
    assert (first.count, rest.count) == (1.0, 20.0)
    assert rest.latent.frames == 1.0


def test_cogvideox_runs_two_latent_frames_at_a_time() -> None:
    found = vae(COG)
    # 13 latent frames: three first, then five times two. 49 frames out: 9 + 5 x 8; in the same.
    first, rest = found.passes(Latent(13.0, 8.0, 12.0))
    assert [(run.latent.frames, run.count, run.first) for run in (first, rest)] == [(3, 1, True), (2, 5, False)]
    assert [(r.latent.frames, r.count) for r in found.passes(Latent(1.0, 8.0, 12.0))] == [(1, 1), (2, 0)]
    for decode, part in ((True, "decoder.output"), (False, "encoder.input")):
        frames = 0.0
        for run in (first, rest):
            graph = vae_graph(found, run, decode=decode, batch=1.0, dtype="bfloat16", fused=False)
            (op,) = [node.op for _, node in graph.nodes() if node.op.part == part and node.op.name == "conv3d"]
            frames += run.count * op.m / (64 * 96)  # type: ignore[attr-defined]
        assert frames == 49


def test_cogvideox_in_batches_costs_what_all_frames_at_once_would() -> None:
    found, latent = vae(COG), Latent(13.0, 8.0, 12.0)
    for decode in (False, True):
        batches = sum(float(run.count) * flops(found, run, decode=decode) for run in found.passes(latent))
        assert batches == flops(found, Pass(latent, 1.0, first=True), decode=decode)


@given(
    size=st.integers(1, 40),
    overlap=st.integers(0, 39),
    length=st.integers(1, 200),
)
def test_tiles_cover_as_a_loop_would(size: int, overlap: int, length: int) -> None:
    stride = max(1, size - overlap)
    axis = TileAxis(size, stride)
    expected = length if length <= size else sum(min(size, length - start) for start in range(0, length, stride))
    assert axis.covered(float(length)) == expected
    assert axis.extent(float(length)) == min(size, length)


def test_tiles_of_hunyuan_video() -> None:
    # 90 x 160 latents in tiles of 32 every 24: starts 0, 24, 48, 72 of lengths 32, 32, 32, 18; and 0 to 144 of
    # 32 x 6 and 16; 33 frames in tiles of 5 every 3: 10 whole ones, then 30..32 with 3.
    tiling = vae(HUNYUAN).tiling
    assert tiling is not None
    (run,) = tiling.passes(Latent(33.0, 90.0, 160.0))
    heights, widths, frames = 32 + 32 + 32 + 18, 6 * 32 + 16, 10 * 5 + 3
    assert (run.latent.frames, run.latent.height, run.latent.width) == (5.0, 32.0, 32.0)
    assert run.count == pytest.approx(heights * widths * frames / (5 * 32 * 32))
