"""Images cut into tiles (InternVL, Llama 4) and features of deeper encoder layers (Qwen3-VL)."""

from __future__ import annotations

from typing import Any

import pytest

from tensor_cast.deployment import Deployment
from tensor_cast.errors import ModelingError
from tensor_cast.graph import Block
from tensor_cast.models import load_spec
from tensor_cast.models.decoder import build
from tensor_cast.models.families import read_spec
from tensor_cast.models.parameters import count_parameters
from tensor_cast.models.spec import ModelSpec
from tensor_cast.ops import Attention, Collective, Elementwise, MatMul
from tensor_cast.simulator import simulate
from tensor_cast.workload import TextWorkload

QWEN3_VL = "Qwen/Qwen3-VL-8B-Instruct"
SCOUT = "RedHatAI/Llama-4-Scout-17B-16E-Instruct-FP8-dynamic"

Values = dict[str, Any]

# InternViT as published configs of 2.5 and 3 have it; both sizes say intern_vit_6b.
VIT_300M: Values = {
    "model_type": "intern_vit_6b",
    "hidden_size": 1024,
    "num_hidden_layers": 24,
    "num_attention_heads": 16,
    "intermediate_size": 4096,
    "image_size": 448,
    "patch_size": 14,
    "norm_type": "layer_norm",
    "qkv_bias": True,
    "qk_normalization": False,
    "drop_path_rate": 0.1,
    "use_flash_attn": True,
}
VIT_6B: Values = VIT_300M | {
    "hidden_size": 3200,
    "num_hidden_layers": 45,
    "num_attention_heads": 25,
    "intermediate_size": 12800,
    "norm_type": "rms_norm",
    "qkv_bias": False,
    "qk_normalization": True,
}
NATIVE_300M: Values = {
    "model_type": "internvl_vision",
    "hidden_size": 1024,
    "num_hidden_layers": 24,
    "num_attention_heads": 16,
    "intermediate_size": 4096,
    "image_size": [448, 448],
    "patch_size": [14, 14],
    "norm_type": "layer_norm",
    "attention_bias": True,
    "use_qk_norm": False,
    "use_absolute_position_embeddings": True,
    "use_mask_token": False,
    "use_mean_pooling": True,
    "layer_scale_init_value": 0.1,
    "projection_dropout": 0.0,
}


def language_model(model_type: str, hidden: int, layers: int, heads: int, kv: int, mlp: int, words: int) -> Values:
    return {
        "model_type": model_type,
        "hidden_size": hidden,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": kv,
        "intermediate_size": mlp,
        "vocab_size": words,
    }


def chat(text: Values, vision: Values, **keys: Any) -> Values:
    return {
        "model_type": "internvl_chat",
        "downsample_ratio": 0.5,
        "dynamic_image_size": True,
        "force_image_size": 448,
        "min_dynamic_patch": 1,
        "max_dynamic_patch": 12,
        "use_thumbnail": True,
        "select_layer": -1,
        "ps_version": "v2",
        "template": "internvl2_5",
        "use_backbone_lora": 0,
        "use_llm_lora": 0,
        "llm_config": text,
        "vision_config": vision,
    } | keys


def native(text: Values, vision: Values, **keys: Any) -> Values:
    return {
        "model_type": "internvl",
        "downsample_ratio": 0.5,
        "image_seq_length": 256,
        "projector_hidden_act": "gelu",
        "vision_feature_layer": -1,
        "vision_feature_select_strategy": "default",
        "text_config": text,
        "vision_config": vision,
    } | keys


def read(values: Values) -> ModelSpec:
    return read_spec(values, name="model", where="config.json")


QWEN_7B = language_model("qwen2", 3584, 28, 28, 4, 18944, 151674)
INTERNLM_7B = language_model("internlm2", 4096, 32, 32, 8, 14336, 92553)
QWEN_32B = language_model("qwen2", 5120, 64, 40, 8, 27648, 151674)
QWEN3_A3B = language_model("qwen3_moe", 2048, 48, 32, 4, 6144, 151936) | {
    "head_dim": 128,
    "moe_intermediate_size": 768,
    "num_experts": 128,
    "num_experts_per_tok": 8,
}


@pytest.mark.parametrize(
    ("config", "total"),
    [
        # Totals of the published checkpoints. InternVL2.5 from 1B to 78B:
        (chat(language_model("qwen2", 896, 24, 14, 2, 4864, 151674), VIT_300M), 938_193_024),
        (chat(language_model("internlm2", 2048, 24, 16, 8, 8192, 92553), VIT_300M), 2_205_754_368),
        (chat(language_model("qwen2", 2048, 36, 16, 2, 11008, 151674), VIT_300M), 3_712_637_952),
        (chat(INTERNLM_7B, VIT_300M), 8_075_365_376),
        (chat(language_model("internlm2", 6144, 48, 48, 8, 16384, 92553), VIT_6B), 25_514_186_112),
        (chat(QWEN_32B, VIT_6B), 38_388_164_992),
        (chat(language_model("qwen2", 8192, 80, 64, 8, 29568, 151674), VIT_6B), 78_408_318_336),
        # InternVL3-8B, in both forms: Qwen2.5-7B has 7,615,616,512 with 152,064 words, 390 x 2 x 3,584 more than here;
        # the encoder below, and the projector 2 x 4,096 + 4,097 x 3,584 + 3,585 x 3,584 = 27,540,480.
        (chat(QWEN_7B, VIT_300M), 7_615_616_512 - 390 * 2 * 3584 + 304_012_288 + 27_540_480),
        (native(QWEN_7B, NATIVE_300M), 7_944_373_760),
        # InternVL3.5-30B-A3B: Qwen3-30B-A3B's 30,532,122,624, and a projector of
        # 2 x 4,096 + 4,097 x 2,048 + 2,049 x 2,048 = 12,595,200.
        (chat(QWEN3_A3B, VIT_300M), 30_532_122_624 + 304_012_288 + 12_595_200),
    ],
)
def test_parameters_of_internvl(config: Values, total: int) -> None:
    spec = read(config)
    assert count_parameters(spec).total == total
    assert spec.ignored_keys == ()


def test_parameters_of_its_encoders_by_hand() -> None:
    # A layer of 300M: 4 x 1,024^2 + 2 x 1,024 x 4,096 and biases 3,072 + 1,024 + 4,096 + 1,024, two LayerNorms 4,096,
    # two scales 2,048 = 12,598,272; 24 of them, patches 589 x 1,024, a class token 1,024, positions 1,025 x 1,024.
    projector = 2 * 4096 + 4097 * 3584 + 3585 * 3584
    small = 24 * 12_598_272 + 589 * 1024 + 1024 + 1025 * 1024
    assert small == 304_012_288
    assert count_parameters(read(chat(QWEN_7B, VIT_300M))).vision == small + projector
    # 6B: no biases on queries, keys and values, RMSNorms, one more on whole rows of queries and of keys.
    layer = 4 * 3200**2 + 2 * 3200 * 12800 + 3200 + 12800 + 3200 + 2 * 3200 + 2 * 3200 + 2 * 3200
    large = 45 * layer + 589 * 3200 + 3200 + 1025 * 3200
    projector = 2 * 12800 + 12801 * 5120 + 5121 * 5120
    assert count_parameters(read(chat(QWEN_32B, VIT_6B))).vision == large + projector
    # Each form says the same.
    assert read(native(QWEN_7B, NATIVE_300M)).vision == read(chat(QWEN_7B, VIT_300M)).vision


def test_parameters_of_llama_4s_encoder() -> None:
    # Scout: 108,641,793,536 published, of which the language model has 107,769,861,120.
    count = count_parameters(load_spec(SCOUT))
    assert count.language_model + count.vision == 108_641_793_536


@pytest.mark.parametrize(
    ("size", "tiles"),
    [
        ((448, 448), 1),
        # Square grids are equally close to a square image: 3 x 3 wins, as 1,024^2 is over half of (3 x 448)^2.
        ((1024, 1024), 10),
        # 600^2 is over half of 448^2 (2 x 2 would need 401,408 pixels).
        ((600, 600), 1),
        # 4 columns and 3 rows.
        ((768, 1024), 13),
        # 2 x 1 is as close as 4 x 2, of which 448 x 896 is not over half: 0.5 x 8 x 448^2 = 802,816 > 401,408.
        ((448, 896), 3),
        # Taller than any grid: 1 x 12.
        ((8000, 100), 13),
    ],
)
def test_tiles_of_internvl(size: tuple[int, int], tiles: int) -> None:
    # A tile has 32 x 32 patches, merged 2 x 2.
    for config in (chat(QWEN_7B, VIT_300M), native(QWEN_7B, NATIVE_300M)):
        rule = read(config).image_rule
        assert rule is not None
        grid = rule.grid(*size)
        assert (grid.tiles, grid.patches, grid.tokens) == (tiles, tiles * 1024, tiles * 256)


@pytest.mark.parametrize(
    ("keys", "tiles"),
    [
        ({"max_dynamic_patch": 6}, 5),  # 2 x 2 and a thumbnail
        ({"use_thumbnail": False}, 9),
        ({"dynamic_image_size": False}, 1),
        ({"min_dynamic_patch": 10, "max_dynamic_patch": 12}, 13),  # 4 x 3 is the closest of at least ten
    ],
)
def test_tiles_by_config(keys: Values, tiles: int) -> None:
    rule = read(chat(QWEN_7B, VIT_300M, **keys)).image_rule
    assert rule is not None
    assert rule.grid(1024, 1024).tiles == tiles


@pytest.mark.parametrize(
    ("size", "tiles"),
    [
        ((336, 336), 1),
        ((100, 300), 1),
        # 4 x 4 tiles scale by 1,344 / 1,024, least of all canvases that hold the image; the whole image is one more.
        ((1024, 1024), 17),
        # 2 x 3: 1,008 / 1,000 in width.
        ((500, 1000), 7),
        # None holds it: 4 x 4 shrinks least.
        ((6000, 6000), 17),
    ],
)
def test_tiles_of_llama_4(size: tuple[int, int], tiles: int) -> None:
    # A tile has 24 x 24 patches, four of which are one token.
    rule = load_spec(SCOUT).image_rule
    assert rule is not None
    grid = rule.grid(*size)
    assert (grid.tiles, grid.patches, grid.tokens) == (tiles, tiles * 576, tiles * 144)


def prefill(**options: Any) -> TextWorkload:
    images = {"image_batch_size": 1, "image_height": 1024, "image_width": 1024} | options
    return TextWorkload(num_queries=2, query_length=100, **images)


def blocks_of(spec: ModelSpec, workload: TextWorkload, deployment: Deployment | None = None) -> dict[str, Block]:
    return {block.name: block for block in build(spec, workload, deployment or Deployment()).graph.blocks}


def matrix_flops(block: Block) -> float:
    return block.count * sum(float(n.op.matrix_flops) for n in block.nodes if isinstance(n.op, MatMul | Attention))


def test_internvls_products_by_hand() -> None:
    # Two images of ten tiles; attention is within a tile's 1,024 patches and class token, which the patch embedding and
    # the projector do not see.
    blocks = blocks_of(read(chat(QWEN_7B, VIT_300M)), prefill())
    rows = 20 * 1025
    assert matrix_flops(blocks["vision.patches"]) == 2 * 20 * 1024 * 588 * 1024
    layer = 2 * rows * (4 * 1024**2 + 2 * 1024 * 4096) + 4 * 20 * 1025**2 * 1024
    assert matrix_flops(blocks["vision.layers"]) == 24 * layer
    assert matrix_flops(blocks["vision.projector"]) == 2 * 20 * 256 * (4096 * 3584 + 3584**2)


def test_llama_4s_products_by_hand() -> None:
    blocks = blocks_of(load_spec(SCOUT), prefill())
    tiles, rows = 34, 34 * 577
    layer = 2 * rows * (4 * 1408**2 + 2 * 1408 * 5632) + 4 * tiles * 577**2 * 1408
    assert matrix_flops(blocks["vision.layers"]) == 34 * layer
    adapter = 5632 * 4096 + 4096 * 4096 + 4096 * 5120
    assert matrix_flops(blocks["vision.projector"]) == 2 * tiles * 144 * adapter


def test_ranks_share_tiles() -> None:
    # 20 tiles on eight ranks: three at most, and an all-gather of 24 tiles' tokens.
    deployment = Deployment(world_size=8, tp_size=8)
    blocks = blocks_of(read(chat(QWEN_32B, VIT_300M)), prefill(), deployment)
    attention = [node.op for node in blocks["vision.layers"].nodes if isinstance(node.op, Attention)]
    assert [float(op.batch) for op in attention] == [3.0]
    (gather,) = (node.op for node in blocks["vision.gather"].nodes)
    assert isinstance(gather, Collective)
    assert gather.message_bytes == 24 * 256 * 5120 * 2


def test_image_tokens_of_tiles_join_each_query() -> None:
    estimate = simulate(read(chat(QWEN_7B, VIT_300M)), device="H100_SXM_80GB", workload=prefill())
    assert estimate.workload.query_length == 100 + 2560
    assert 0.0 < float(estimate.encoder_time_s) < float(estimate.total_time_s)
    estimate = simulate(load_spec(SCOUT), device="H200_SXM_141GB", workload=prefill())
    assert estimate.workload.query_length == 100 + 17 * 144


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (chat(QWEN_7B, VIT_300M, select_layer=-4), "select_layer is -4, expected -1"),
        (chat(QWEN_7B, VIT_300M, use_llm_lora=16), "use_llm_lora is 16, expected 0"),
        (
            chat(QWEN_7B, VIT_300M, downsample_ratio=0.3),
            "downsample_ratio is 0.3, expected one over a divisor of the 32",
        ),
        (chat(QWEN_7B, VIT_300M, downsample_ratio=0), "downsample_ratio is 0, expected a number above 0"),
        (chat(QWEN_7B, VIT_300M, min_dynamic_patch=13), "min_dynamic_patch is 13, expected at most"),
        (chat(QWEN_7B, VIT_300M | {"norm_type": "none"}), "norm_type is 'none', expected layer_norm or rms_norm"),
        (chat(QWEN_7B, VIT_300M | {"use_moe": True}), "use_moe is True, expected false"),
        (
            chat(QWEN_7B | {"model_type": "chatglm"}, VIT_300M),
            "llm_config.model_type is 'chatglm', expected a language",
        ),
        ({"model_type": "internvl_chat"}, "llm_config is missing"),
        (native(QWEN_7B, NATIVE_300M | {"image_size": [448, 224]}), r"image_size is \[448, 224\], expected a square"),
        (native(QWEN_7B, NATIVE_300M | {"use_mean_pooling": False}), "use_mean_pooling is False, expected true"),
        (native(QWEN_7B, NATIVE_300M, vision_feature_select_strategy="full"), "expected 'default', which drops"),
    ],
)
def test_what_internvl_lacks_is_said(config: Values, message: str) -> None:
    with pytest.raises(ModelingError, match=message):
        read(config)


def test_the_language_model_alone_can_be_asked_for() -> None:
    spec = read_spec(chat(QWEN_7B, VIT_300M), name="model", where="config.json", family="qwen2")
    assert (spec.vision, spec.hidden) == (None, 3584)


def test_a_key_around_the_encoder_that_could_cost_something_is_said() -> None:
    spec = read(chat(QWEN_7B | {"extra_heads": 2}, VIT_300M, flash_relative_threshold=0.5))
    assert spec.ignored_keys == ("flash_relative_threshold", "llm_config.extra_heads")
    assert {"downsample_ratio", "llm_config.hidden_size", "vision_config.patch_size"} <= set(spec.read_keys)


def test_deepstack_adds_to_the_first_decoder_layers() -> None:
    # Two images of 1,024 tokens of width 4,096: read twice, written once, in three layers.
    block = blocks_of(load_spec(QWEN3_VL), prefill())["deepstack"]
    assert block.count == 3
    (add,) = (node.op for node in block.nodes)
    assert isinstance(add, Elementwise)
    assert add.flops == 2 * 1024 * 4096
    assert [float(tensor.bytes) for tensor in (*add.inputs, *add.outputs)] == [2 * 1024 * 4096 * 2] * 3


@pytest.mark.parametrize(
    ("model", "workload"),
    [
        (QWEN3_VL, TextWorkload(num_queries=2, query_length=100)),
        (QWEN3_VL, TextWorkload(num_queries=2, query_length=1, context_length=2000, decode=True)),
        ("Qwen/Qwen3.5-27B", prefill()),
    ],
)
def test_without_images_or_deeper_features_there_is_nothing_to_add(model: str, workload: TextWorkload) -> None:
    assert "deepstack" not in blocks_of(load_spec(model), workload)


def test_sequence_parallel_ranks_add_their_share_of_deepstack() -> None:
    deployment = Deployment(world_size=4, tp_size=4, enable_sequence_parallel=True)
    (node,) = blocks_of(load_spec(QWEN3_VL), prefill(), deployment)["deepstack"].nodes
    assert node.op.outputs[0].shape == (512.0, 4096)


def test_the_gather_carries_deepstack_too() -> None:
    # Each of two ranks encodes one image; both then have 2 x 1,024 tokens, and three times as much for deepstack.
    blocks = blocks_of(load_spec(QWEN3_VL), prefill(), Deployment(world_size=2, tp_size=2))
    (gather,) = (node.op for node in blocks["vision.gather"].nodes)
    assert isinstance(gather, Collective)
    assert gather.message_bytes == 4 * 2 * 1024 * 4096 * 2
