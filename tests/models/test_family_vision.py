"""Images: patches and tokens by each model's rule, and the encoder's kernels, time and memory."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tensor_cast.deployment import Deployment
from tensor_cast.errors import ModelingError
from tensor_cast.layers.vision import ImageGrid
from tensor_cast.models import load_spec
from tensor_cast.models.decoder import build
from tensor_cast.models.image_rules import (
    AspectTiles,
    CanvasTiles,
    FixedSize,
    ImageRule,
    NaViTResize,
    PooledBudget,
    SmartResize,
)
from tensor_cast.ops import Attention, MatMul
from tensor_cast.simulator import simulate
from tensor_cast.workload import TextWorkload

QWEN25_VL, QWEN3_VL = "Qwen/Qwen2.5-VL-7B-Instruct", "Qwen/Qwen3-VL-8B-Instruct"


def prefill(**options: object) -> TextWorkload:
    images = {"image_batch_size": 1, "image_height": 1024, "image_width": 1024} | options
    return TextWorkload(num_queries=2, query_length=100, **images)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("model", "size", "patches", "tokens"),
    [
        # 1024 / 28 rounds to 37: 74 x 74 patches, merged 2 x 2.
        (QWEN25_VL, (1024, 1024), 5476, 1369),
        (QWEN25_VL, (28, 28), 16, 4),  # enlarged to 56 x 56 pixels at least
        (QWEN3_VL, (1024, 1024), 4096, 1024),
        # round(100 / 32) = 3 and round(300 / 32) = 9: 27,648 pixels are under 65,536, so each side grows by
        # sqrt(65,536 / 30,000) = 1.478 and up to a multiple of 32: 160 x 448.
        (QWEN3_VL, (100, 300), 10 * 28, 5 * 14),
        ("google/gemma-3-27b-it", (123, 4567), 4096, 256),
        # 280 tokens of 48 x 48 pixels at most: factor sqrt(280) 48 / 1024 gives 16.7 squares a side.
        ("google/gemma-4-26B-A4B", (1024, 1024), 48 * 48, 256),
        # Padded to multiples of 28: 37 x 37 merged.
        ("moonshotai/Kimi-K2.5", (1024, 1024), 5476, 1369),
        ("moonshotai/Kimi-K2.5", (14, 14), 4, 1),
    ],
)
def test_tokens_of_an_image(model: str, size: tuple[int, int], patches: int, tokens: int) -> None:
    rule = load_spec(model).image_rule
    assert rule is not None
    grid = rule.grid(*size)
    assert (grid.patches, grid.tokens) == (patches, tokens)


@pytest.mark.parametrize(("model", "rotates"), [("google/gemma-3-27b-it", False), (QWEN3_VL, True)])
def test_an_encoder_rotates_queries_and_keys_only_if_it_has_a_rotary_embedding(model: str, rotates: bool) -> None:
    # SigLIP's positions are a learned table alone (SiglipVisionEmbeddings).
    workload = TextWorkload(num_queries=1, query_length=16, image_batch_size=1, image_height=896, image_width=896)
    kernels = simulate(model, device="H200_SXM_141GB", workload=workload).kernels
    assert any(kernel.op.name == "vision_rope" for kernel in kernels) is rotates


RULES: list[ImageRule] = [
    SmartResize(14, 2, 56 * 56, 28 * 28 * 16384),
    SmartResize(16, 2, 256 * 256, 4096 * 4096),
    NaViTResize(14, 2, 16384, 512),
    PooledBudget(16, 3, 280),
    FixedSize(14, 896, 256),
    AspectTiles(14, 448, 1, 12, True, 256),
    CanvasTiles(14, 336, 16, 144),
]


@given(rule=st.sampled_from(RULES), height=st.integers(40, 6000), width=st.integers(40, 6000))
def test_rules_keep_their_limits(rule: ImageRule, height: int, width: int) -> None:
    grid = rule.grid(height, width)
    assert grid.tokens >= 1
    match rule:
        case SmartResize(patch, merge, low, high):
            assert grid.patches == grid.tokens * merge**2
            assert low <= grid.patches * patch**2 <= high
        case NaViTResize(patch, merge, most, side):
            assert max(grid.rows, grid.columns) <= side
            assert grid.patches == grid.tokens * merge**2
        case PooledBudget(patch, pool, most):
            assert grid.tokens <= most
            assert grid.patches == grid.tokens * pool**2
        case FixedSize():
            assert grid.tokens == 256
        case AspectTiles(max_tiles=most) | CanvasTiles(max_tiles=most):
            # One more than the grid's, and never two: a thumbnail joins two tiles or more.
            assert grid.tiles == 1 or 3 <= grid.tiles <= most + 1
            assert grid.tokens == grid.tiles * rule.tokens


def test_a_strip_is_refused() -> None:
    with pytest.raises(ModelingError, match="over 200 times as long as broad"):
        SmartResize(14, 2, 56 * 56, 28 * 28 * 16384).grid(10, 2010)


@given(rows=st.integers(1, 40), columns=st.integers(1, 40), window=st.integers(1, 12))
def test_pairs_in_windows(rows: int, columns: int, window: int) -> None:
    sizes: dict[tuple[int, int], int] = {}
    for row in range(rows):
        for column in range(columns):
            key = (row // window, column // window)
            sizes[key] = sizes.get(key, 0) + 1
    grid = ImageGrid(rows, columns, 1)
    assert grid.attention_pairs(window) == sum(size**2 for size in sizes.values())
    assert grid.attention_pairs(None) == (rows * columns) ** 2


def test_the_encoders_products_by_hand() -> None:
    step = build(load_spec(QWEN3_VL), prefill(), Deployment())
    blocks = [block for block in step.graph.blocks if block.name.startswith("vision")]
    assert [block.name for block in blocks] == ["vision.patches", "vision.layers", "vision.projector"]
    flops = sum(
        block.count * float(node.op.matrix_flops)
        for block in blocks
        for node in block.nodes
        if isinstance(node.op, MatMul | Attention)
    )
    # Two images of 4,096 patches and 1,024 tokens; hidden 1,152, MLP 4,304, 27 layers, patches of 3 x 2 x 16 x 16, one
    # merger 4,608 -> 4,608 -> 4,096 and three of deeper layers alike.
    patches, tokens, hidden = 2 * 4096, 2 * 1024, 1152
    layer = 2 * patches * (4 * hidden**2 + 2 * hidden * 4304) + 4 * 2 * 4096**2 * hidden
    mergers = 4 * 2 * tokens * (4608 * 4608 + 4608 * 4096)
    assert flops == 27 * layer + 2 * patches * 1536 * hidden + mergers


def test_image_tokens_join_each_query() -> None:
    estimate = simulate(load_spec(QWEN25_VL), device="H100_SXM_80GB", workload=prefill(image_batch_size=2))
    assert estimate.workload.image_tokens == 2 * 1369
    assert estimate.workload.query_length == 100 + 2 * 1369
    assert 0.0 < float(estimate.encoder_time_s) < float(estimate.total_time_s)
    text = simulate(
        load_spec(QWEN25_VL),
        device="H100_SXM_80GB",
        workload=TextWorkload(num_queries=2, query_length=100 + 2 * 1369),
    )
    assert estimate.total_time_s == pytest.approx(text.total_time_s + estimate.encoder_time_s)


def test_a_decode_keeps_the_encoder_in_memory_and_does_not_run_it() -> None:
    workload = TextWorkload(num_queries=2, query_length=1, context_length=2000, decode=True)
    estimate = simulate(load_spec(QWEN3_VL), device="H100_SXM_80GB", workload=workload)
    assert estimate.encoder_time_s == 0.0
    assert estimate.memory.encoder_weights_bytes == 576_388_336 * 2
    assert estimate.memory.weights_bytes == 8_767_123_696 * 2


def test_the_encoders_own_parallel_size() -> None:
    spec = load_spec(QWEN3_VL)

    def run(size: int | None) -> float:
        deployment = Deployment(world_size=4, tp_size=4, vision_tp_size=size)
        memory = simulate(spec, device="H100_SXM_80GB", workload=prefill(), deployment=deployment).memory
        return float(memory.encoder_weights_bytes)

    assert run(None) == run(1) == 576_388_336 * 2
    assert run(4) < run(2) < run(1)
    with pytest.raises(ModelingError, match="--vision-tp-size 3 does not divide --tp-size 4"):
        run(3)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"image_height": None}, "needs image_height and image_width"),
        ({"image_batch_size": 0}, "need image_batch_size"),
        ({"image_batch_size": -1}, "image_batch_size must be a whole number of at least 0"),
        ({"decode": True, "context_length": 5}, "belongs to a prefill"),
    ],
)
def test_wrong_images_are_refused(options: dict[str, object], message: str) -> None:
    with pytest.raises(ModelingError, match=message):
        prefill(**options)


def test_a_text_model_takes_no_images() -> None:
    with pytest.raises(ModelingError, match="has no vision encoder"):
        simulate(load_spec("Qwen/Qwen3-8B"), device="H100_SXM_80GB", workload=prefill())
