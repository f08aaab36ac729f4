"""Text encoders: parameters equal those of the reference classes of transformers."""

from __future__ import annotations

import pytest

from tensor_cast.models.catalog import find
from tensor_cast.models.config import Config
from tensor_cast.models.diffusion.counts import matrix_flops
from tensor_cast.models.diffusion.text_encoders import TextEncoder, text_encoder

UMT5 = ("Wan-AI/Wan2.1-T2V-14B-Diffusers", "text_encoder")
T5 = ("black-forest-labs/FLUX.1-dev", "text_encoder_2")
CLIP_G = ("stabilityai/stable-diffusion-3-medium-diffusers", "text_encoder_2")


def encoder(model: str, component: str) -> TextEncoder:
    entry = find(model)
    assert entry is not None
    assert entry.pipeline is not None
    return text_encoder(Config(entry.pipeline[component], where=model))


@pytest.mark.parametrize(
    ("component", "parameters"), [(UMT5, 5_680_910_336), (T5, 4_762_310_656), (CLIP_G, 694_659_840)]
)
def test_parameters_equal_the_reference_class(component: tuple[str, str], parameters: int) -> None:
    assert encoder(*component).parameters == parameters


def test_umt5_by_hand() -> None:
    # Vocabulary 256,384 x 4,096; 24 layers of 4 d d attention, 3 d f gated feed-forward with f = 10,240, two norms and
    # a table of 32 x 64 position biases; the last norm.
    d, f = 4_096, 10_240
    assert encoder(*UMT5).parameters == 256_384 * d + 24 * (4 * d * d + 3 * d * f + 2 * d + 32 * 64) + d


def test_t5_has_one_table_of_positions() -> None:
    d, f = 4_096, 10_240
    assert encoder(*T5).parameters == 32_128 * d + 24 * (4 * d * d + 3 * d * f + 2 * d) + 32 * 64 + d


def test_t5_flops_by_hand() -> None:
    # Two prompts of 100 tokens: 2 x 100 x 2 FLOPs a weight of the layers, and 4 x 100 x 100 x d of each prompt's
    # attention in 24 layers.
    d, f = 4_096, 10_240
    graph = encoder(*T5).graph(2.0, 100.0, dtype="bfloat16", fused=False)
    expected = 24 * (2 * 200 * (4 * d * d + 3 * d * f) + 2 * 4 * 100 * 100 * d)
    assert matrix_flops(graph) == expected


def test_clip_takes_its_positions_whatever_the_prompt() -> None:
    graphs = [encoder(*CLIP_G).graph(1.0, tokens, dtype="float16", fused=False) for tokens in (10.0, 500.0)]
    assert matrix_flops(graphs[0]) == matrix_flops(graphs[1])
