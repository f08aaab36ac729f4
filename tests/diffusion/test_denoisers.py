"""Structure of denoisers: parameters and FLOPs equal those of the reference classes.

Figures without a derivation are counts over the classes of diffusers 0.36 on PyTorch's meta device: parameters by
``numel``, FLOPs by ``FlopCounterMode``, whose count has products and convolutions and nothing else.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from tensor_cast.graph import Graph
from tensor_cast.layers.dit import DenoiserBuild
from tensor_cast.models.catalog import find
from tensor_cast.models.config import Config
from tensor_cast.models.diffusion.counts import denoiser_graph, denoiser_parameters, matrix_flops
from tensor_cast.models.diffusion.denoiser import CacheUse, Denoiser, DenoiserInput, Latent
from tensor_cast.models.diffusion.image_models import ImageMMDiT, sd3
from tensor_cast.models.diffusion.reader import DENOISERS, load_pipeline
from tensor_cast.ops import Attention, MatMul
from tensor_cast.video_deployment import VideoDeployment

WAN_14B = "Wan-AI/Wan2.1-T2V-14B-Diffusers"
HUNYUAN = "hunyuanvideo-community/HunyuanVideo"

PARAMETERS = {
    WAN_14B: 14_288_491_584,
    "Wan-AI/Wan2.1-T2V-1.3B-Diffusers": 1_418_996_800,
    "Wan-AI/Wan2.1-I2V-14B-480P-Diffusers": 16_394_878_784,
    "Wan-AI/Wan2.1-I2V-14B-720P-Diffusers": 16_394_878_784,
    "Wan-AI/Wan2.1-FLF2V-14B-720P-Diffusers": 16_395_536_704,
    "Wan-AI/Wan2.2-T2V-A14B-Diffusers": 14_288_491_584,
    "Wan-AI/Wan2.2-I2V-A14B-Diffusers": 14_288_901_184,
    "Wan-AI/Wan2.2-TI2V-5B-Diffusers": 4_999_787_712,
    HUNYUAN: 12_821_012_544,
    "hunyuanvideo-community/HunyuanVideo-1.5-Diffusers-480p_t2v": 8_326_608_160,
    "THUDM/CogVideoX-2b": 1_693_783_872,
    "THUDM/CogVideoX-5b": 5_570_283_072,
    "THUDM/CogVideoX-5b-I2V": 5_570_479_680,
    "black-forest-labs/FLUX.1-dev": 11_901_408_320,
    "black-forest-labs/FLUX.1-schnell": 11_891_178_560,
    "stabilityai/stable-diffusion-3-medium-diffusers": 2_028_328_000,
    "stabilityai/stable-diffusion-3.5-large": 8_056_627_520,
    "Qwen/Qwen-Image": 20_430_401_088,
    "Qwen/Qwen-Image-Edit": 20_430_401_088,
    "Qwen/Qwen-Image-Edit-2509": 20_430_401_088,
    "Qwen/Qwen-Image-Edit-2511": 20_430_401_088,
}

VIDEO, IMAGE = Latent(3.0, 8.0, 12.0), Latent(1.0, 8.0, 12.0)
FLOPS = {
    WAN_14B: (VIDEO, 17.0, 1_799_963_279_360),
    "Wan-AI/Wan2.1-T2V-1.3B-Diffusers": (VIDEO, 17.0, 186_411_810_816),
    "Wan-AI/Wan2.1-I2V-14B-480P-Diffusers": (VIDEO, 512.0, 5_049_418_383_360),
    "Wan-AI/Wan2.1-FLF2V-14B-720P-Diffusers": (VIDEO, 512.0, 6_146_723_676_160),
    "Wan-AI/Wan2.2-TI2V-5B-Diffusers": (VIDEO, 17.0, 657_277_648_896),
    HUNYUAN: (VIDEO, 17.0, 1_230_538_776_576),
    "THUDM/CogVideoX-2b": (VIDEO, 226.0, 815_718_699_008),
    "THUDM/CogVideoX-5b": (VIDEO, 226.0, 2_887_949_975_552),
    "black-forest-labs/FLUX.1-dev": (IMAGE, 17.0, 537_494_138_880),
    "Qwen/Qwen-Image": (IMAGE, 17.0, 572_451_667_968),
    "stabilityai/stable-diffusion-3-medium-diffusers": (IMAGE, 17.0, 56_832_442_368),
    "stabilityai/stable-diffusion-3.5-large": (IMAGE, 17.0, 225_730_126_848),
}


def denoiser(model: str, component: str = "transformer") -> Denoiser:
    entry = find(model)
    assert entry is not None
    assert entry.pipeline is not None
    if model == "Wan-AI/Wan2.2-TI2V-5B-Diffusers":
        # The index of this pipeline, not its transformer's config, says that each token has a time of its own.
        return load_pipeline(model).denoiser
    config = entry.pipeline[component]
    return DENOISERS[config["_class_name"]](Config(config, where=model))


def forward(
    model: Denoiser, request: DenoiserInput, *, ranks: int = 1, batch: float = 1.0, **deployment: object
) -> Graph:
    return denoiser_graph(model, request, batch=batch, ranks=ranks, deployment=VideoDeployment(**deployment))  # type: ignore[arg-type]


@pytest.mark.parametrize("model", PARAMETERS)
def test_parameters_equal_the_reference_class(model: str) -> None:
    assert denoiser_parameters(denoiser(model)) == PARAMETERS[model]


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("model", FLOPS)
def test_flops_equal_the_reference_class(model: str, compiled: bool) -> None:
    latent, text, expected = FLOPS[model]
    found = denoiser(model)
    if isinstance(found, ImageMMDiT):
        # The reference class takes all text tokens as one input, CLIP's too.
        found = replace(found, clip_tokens=0)
    assert matrix_flops(forward(found, DenoiserInput(latent, text), compile=compiled)) == expected


def test_both_denoisers_of_wan_2_2_are_alike() -> None:
    first, second = (denoiser("Wan-AI/Wan2.2-T2V-A14B-Diffusers", name) for name in ("transformer", "transformer_2"))
    assert first == second


def test_wan_parameters_by_hand() -> None:
    # Width d = 12 x 128 = 1,536, feed-forward f = 8,960, 30 blocks (Wan2.1-T2V-1.3B). A block has
    #   4 projections each of self- and cross-attention:          8 (d d + d)
    #   RMSNorm of queries and keys, both attentions:             4 d
    #   feed-forward, both ways with biases:                      2 d f + f + d
    #   LayerNorm before cross-attention: 2 d;  modulation:       6 d
    # and beside: patches 16 x 4 -> d; time 256 -> d -> d and d -> 6 d; text 4,096 -> d -> d; output 2 d and d -> 64.
    d, f = 1_536, 8_960
    block = 8 * (d * d + d) + 4 * d + 2 * d * f + f + d + 2 * d + 6 * d
    beside = (64 * d + d) + (256 * d + d) + (d * d + d) + (6 * d * d + 6 * d)
    beside += (4_096 * d + d) + (d * d + d) + 2 * d + (64 * d + 64)
    assert 30 * block + beside == PARAMETERS["Wan-AI/Wan2.1-T2V-1.3B-Diffusers"]


def test_wan_14b_forward_at_480p_by_hand() -> None:
    # 21 x 30 x 52 = 32,760 tokens, d = 5,120, f = 13,824, 512 text tokens, 40 blocks, each
    #   self-attention: 4 projections 8 N d d, scores and values 4 N N d
    #   cross-attention: queries and output 4 N d d, keys and values 4 T d d, scores and values 4 N T d
    #   feed-forward: 4 N d f
    n, t, d, f = 32_760, 512, 5_120, 13_824
    block = 8 * n * d * d + 4 * n * n * d + 4 * n * d * d + 4 * t * d * d + 4 * n * t * d + 4 * n * d * f
    assert 40 * block == pytest.approx(1.678e15, rel=2e-4)
    graph = forward(denoiser(WAN_14B), DenoiserInput(Latent(21.0, 60.0, 104.0), 512.0))
    blocks = sum(b.count * node.op.matrix_flops for b, node in graph.nodes() if b.name.startswith("blocks"))
    assert blocks == 40 * block


def test_hunyuan_forward_at_720p_by_hand() -> None:
    # 33 x 45 x 80 = 118,800 video and 256 text tokens, d = 3,072. A block of either kind multiplies every token with
    # 12 d d weights (4 d d of attention, 8 d d of feed-forward) and attends jointly: 24 N d d + 4 N N d.
    n, d = 118_800 + 256, 3_072
    blocks = 60 * (24 * n * d * d + 4 * n * n * d)
    assert blocks == 12_068_367_724_707_840
    graph = forward(denoiser(HUNYUAN), DenoiserInput(Latent(33.0, 90.0, 160.0), 256.0))
    # With the refiner, modulation, embeddings and output, as FlopCounterMode counts the reference class.
    assert matrix_flops(graph) == 12_068_592_207_003_648


def test_ratio_of_wan_720p_to_480p() -> None:
    model = denoiser(WAN_14B)
    small, large = (
        matrix_flops(forward(model, DenoiserInput(Latent(21.0, *size), 512.0)))
        for size in ((60.0, 104.0), (90.0, 160.0))
    )
    assert large / small == pytest.approx(3.8869, rel=1e-3)


def test_hunyuan_video_15_block_flops() -> None:
    # 72 video (3 x 4 x 6), 17 text, 256 glyph and 729 image tokens, d = 2,048. A block multiplies every token with
    # 12 d d weights, modulates both streams by 6 d d each and attends jointly. The reference class run on a CPU with
    # two blocks and with one differs by all but the attention, which FlopCounterMode does not see there.
    n, d = 72 + 17 + 256 + 729, 2_048
    products, attention = 24 * n * d * d + 24 * d * d, 4 * n * n * d
    assert products == 231_432_323_072 - 123_219_279_872
    model = denoiser("hunyuanvideo-community/HunyuanVideo-1.5-Diffusers-480p_t2v")
    graph = forward(model, DenoiserInput(Latent(3.0, 4.0, 6.0), 17.0))
    block = sum(node.op.matrix_flops for b, node in graph.nodes() if b.name.startswith("double"))
    assert block == products + attention


def test_sd35_medium_attends_twice_in_its_first_blocks() -> None:
    # Structure of Stable Diffusion 3.5 medium; figures of the reference class.
    config = {
        "num_layers": 24,
        "num_attention_heads": 24,
        "caption_projection_dim": 1536,
        "dual_attention_layers": list(range(13)),
        "qk_norm": "rms_norm",
        "pos_embed_max_size": 384,
    }
    model = sd3(Config(config, where="sd3.5-medium"))
    assert denoiser_parameters(model) == 2_243_171_520
    assert matrix_flops(forward(replace(model, clip_tokens=0), DenoiserInput(IMAGE, 17.0))) == 62_951_276_544
    assert [count for _, count in model.doubles] == [13, 10, 1]


def test_ulysses_shares_out_tokens_and_pads() -> None:
    # 3 x 5 x 6 = 90 tokens over 4 ranks are 23 each, 92 in all; 12 heads are 3 each.
    model = denoiser("Wan-AI/Wan2.1-T2V-1.3B-Diffusers")
    graph = forward(model, DenoiserInput(Latent(3.0, 10.0, 12.0), 17.0), ranks=4)
    attention = [n.op for b, n in graph.nodes() if isinstance(n.op, Attention) and n.op.part == "attention.core"]
    assert [(op.query_length, op.kv_length, op.heads, op.pairs) for op in attention] == [(92.0, 92.0, 3, 92.0 * 92.0)]
    exchanged = [n.op for b, n in graph.nodes() if n.op.name == "all_to_all"]
    # Queries, keys, values and the result: 23 tokens x 1,536 x 2 bytes of each rank.
    assert [op.message_bytes for op in exchanged] == [23 * 1_536 * 2] * 4  # type: ignore[attr-defined]
    assert [op.group_size for op in exchanged] == [4] * 4  # type: ignore[attr-defined]


def test_ulysses_lays_out_what_it_exchanges() -> None:
    # In front of and behind each of the four exchanges; alone there is none.
    model, request = denoiser("Wan-AI/Wan2.1-T2V-1.3B-Diffusers"), DenoiserInput(Latent(3.0, 10.0, 12.0), 17.0)
    for ranks, copies in ((1, 0), (4, 8)):
        block = [n.op for b, n in forward(model, request, ranks=ranks).nodes() if b.name.startswith("blocks")]
        assert sum(op.name == "transpose" for op in block) == copies


def test_time_of_every_token_on_every_rank() -> None:
    # 90 tokens over 4 ranks are 23 each and 92 in all; 1,536 wide, to six vectors of as many.
    model = replace(denoiser("Wan-AI/Wan2.1-T2V-1.3B-Diffusers"), token_timesteps=True, replicated_time="float32")  # type: ignore[type-var]
    graph = forward(model, DenoiserInput(Latent(3.0, 10.0, 12.0), 17.0), ranks=4)
    (projection,) = [n.op for _, n in graph.nodes() if n.op.part == "time_projection" and isinstance(n.op, MatMul)]
    assert (projection.m, projection.n, projection.matrix_dtype) == (92.0, 6 * 1_536, "float32")
    modulations = [n.op for b, n in graph.nodes() if n.op.part == "modulation"]
    assert {(op.inputs[0].shape, op.outputs[0].dtype) for op in modulations} == {((23.0, 6 * 1_536), "float32")}
    assert denoiser_parameters(model) == denoiser_parameters(replace(model, replicated_time=None))


def test_ulysses_divides_the_work_of_blocks() -> None:
    model = denoiser(WAN_14B)
    request = DenoiserInput(Latent(21.0, 60.0, 104.0), 512.0)
    whole, share = forward(model, request), forward(model, request, ranks=8)

    def of(graph: Graph, part: str) -> float:
        return sum(b.count * float(n.op.matrix_flops) for b, n in graph.nodes() if n.op.part == part)

    for part in ("attention.core", "attention.q", "mlp.up", "cross_attention.core"):
        assert of(share, part) == of(whole, part) / 8
    # Keys and values of the text are made on every rank.
    assert of(share, "cross_attention.k") == of(whole, "cross_attention.k")


def test_cached_blocks_are_left_out() -> None:
    model = denoiser(HUNYUAN)
    cache = CacheUse("reuse", (10, 30))
    request = DenoiserInput(VIDEO, 17.0)
    counts = {
        block.name.split(".")[0]: block.count
        for block in forward(model, DenoiserInput(VIDEO, 17.0, cache=cache)).blocks
        if block.layers
    }
    # Blocks 10 to 29 of 20 two-stream and 40 one-stream blocks.
    assert counts == {"double_blocks": 10, "single_blocks": 30}
    full = {b.name.split(".")[0]: b.count for b in forward(model, request).blocks if b.layers}
    assert full == {"double_blocks": 20, "single_blocks": 40}


def test_quantised_blocks_multiply_in_int8_and_the_rest_does_not() -> None:
    graph = forward(denoiser(WAN_14B), DenoiserInput(VIDEO, 17.0), quantize_linear="W8A8_DYNAMIC")
    dtypes = {n.op.part: n.op.matrix_dtype for b, n in graph.nodes() if isinstance(n.op, MatMul)}
    assert dtypes["attention.q"] == dtypes["mlp.down"] == dtypes["cross_attention.k"] == "int8"
    assert dtypes["patch_embedding"] == dtypes["time_projection"] == dtypes["output"] == "bfloat16"


def test_quantised_attention_runs_in_its_dtype_with_scales() -> None:
    graph = forward(denoiser(WAN_14B), DenoiserInput(VIDEO, 17.0), quantize_attention="INT8")
    attention = [n.op for b, n in graph.nodes() if isinstance(n.op, Attention)]
    assert {op.matrix_dtype for op in attention} == {"int8"}
    assert [tensor.dtype for tensor in attention[0].inputs] == ["int8", "float32"] * 3


def test_weights_do_not_depend_on_the_size() -> None:
    build = DenoiserBuild(graph=Graph(), dtype="bfloat16", deployment=VideoDeployment(), batch=1.0)
    model = denoiser("Wan-AI/Wan2.1-T2V-1.3B-Diffusers")
    model.forward(build, DenoiserInput(Latent(21.0, 60.0, 104.0), 512.0))
    counted = sum(int(w.elements) * block.weight_copies for block in build.graph.blocks for w in block.weights())
    assert counted == denoiser_parameters(model)
