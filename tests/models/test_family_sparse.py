"""Sparse and compressed attention: DeepSeek-V3.2 and V4, GLM-5, MiniMax-M3, MiMo-V2-Flash."""

from __future__ import annotations

from collections import Counter

import pytest

from tensor_cast.errors import ModelingError
from tensor_cast.layers.compressed_attention import CompressedAttention
from tensor_cast.layers.mla import LatentAttention
from tensor_cast.models import load_spec
from tensor_cast.models.config import Config
from tensor_cast.models.deepseek import _indexer_types
from tensor_cast.models.facts import model_facts
from tensor_cast.models.parameters import layer_caches


def test_deepseek_v32_keeps_an_index_key_beside_the_latent() -> None:
    facts = model_facts(load_spec("deepseek-ai/DeepSeek-V3.2"))
    # 61 layers: a latent of 512 + 64, and an index key of 128.
    assert facts.kv_bytes_per_token == 61 * (576 + 128) * 2
    # Beyond the 2,048 chosen tokens only 64 index heads of 128 see a token.
    assert facts.flops.attention_beyond_window == 61 * 2 * 64 * 128


def test_glm_5_2_shares_an_indexer_among_layers() -> None:
    attention = [layer.attention for layer in load_spec("zai-org/GLM-5.2").layers]
    assert all(isinstance(block, LatentAttention) and block.top_k == 2048 for block in attention)
    own = [index for index, block in enumerate(attention) if isinstance(block, LatentAttention) and block.indexer]
    assert own == [0, 1, *range(2, 78, 4)]


@pytest.mark.parametrize(
    ("keys", "kinds"),
    [
        ({}, "FFFFFF"),
        ({"index_topk_freq": 2, "index_skip_topk_offset": 1}, "FSFSFS"),
        ({"index_topk_freq": 4, "index_skip_topk_offset": 3}, "FFFSSS"),
        ({"index_topk_pattern": "FSSFSS"}, "FSSFSS"),
    ],
)
def test_schedules_of_indexers(keys: dict[str, object], kinds: str) -> None:
    found = _indexer_types(Config(dict(keys), where="config.json"), 6)
    assert "".join(kind[0].upper() for kind in found) == kinds


def test_deepseek_v4_compresses_by_layer() -> None:
    spec = load_spec("deepseek-ai/DeepSeek-V4-Flash")
    ratios = Counter(
        layer.attention.compressor.ratio if layer.attention.compressor else 0
        for layer in spec.layers
        if isinstance(layer.attention, CompressedAttention)
    )
    assert ratios == {0: 2, 4: 21, 128: 20}
    # A sequence of 8,192 tokens: 128 of the window in every layer; an entry of 512 and an index entry of 128 for 4
    # tokens in 21 layers; an entry of 512 for 128 tokens in 20.
    kept = 43 * 128 * 512 + 21 * 8192 // 4 * (512 + 128) + 20 * 8192 // 128 * 512
    assert model_facts(spec, context_length=8192).kv_bytes_per_sequence == 2 * kept
    # Three tokens more complete no entry of four.
    assert model_facts(spec, context_length=8195).kv_bytes_per_sequence == 2 * kept
    # Waiting tokens: values and gates of 4 x 1,024 and their overlap of 4 x 512 (and a quarter of each for the index)
    # or of 128 x 512.
    waiting = 21 * (2 * 4 * 1024 + 2 * 4 * 512) * 5 // 4 + 20 * 2 * 128 * 512
    assert model_facts(spec).state_bytes_per_sequence == 2 * waiting


def test_deepseek_v4_streams_share_the_published_parameters() -> None:
    # Hyper-connections: 24 x 16,384 + 24 + 3 twice a layer, 4 x 16,384 + 4 + 1 at the head.
    parts = model_facts(load_spec("deepseek-ai/DeepSeek-V4-Flash")).parameters.parts
    found = sum(part.total for part in parts if "hyper" in part.part)
    assert found == 43 * 2 * (24 * 16384 + 27) + 4 * 16384 + 5


def test_a_compression_that_is_not_known_is_refused() -> None:
    from tensor_cast.models import catalog
    from tensor_cast.models.families import read_spec

    entry = catalog.find("deepseek-ai/DeepSeek-V4-Flash")
    assert entry is not None
    assert entry.config is not None
    config = {**entry.config, "compress_ratios": [16] * 44}
    with pytest.raises(ModelingError, match=r"compress_ratios is .* expected 0, 4 or 128 for each of the 43 layers"):
        read_spec(config, name="model", where="config.json")
    del config["compress_ratios"]
    with pytest.raises(ModelingError, match="compress_ratios is missing"):
        read_spec(config, name="model", where="config.json")


def test_minimax_m3_keeps_index_keys_in_sparse_layers() -> None:
    facts = model_facts(load_spec("MiniMaxAI/MiniMax-M3"))
    # 60 layers of 4 KV heads of 128; 57 of them with an index key of 128.
    assert facts.kv_bytes_per_token == (60 * 2 * 4 * 128 + 57 * 128) * 2


def test_mimo_v2_flash_windows() -> None:
    caches = {
        cache.window: (cache.elements_per_token, n) for cache, n in layer_caches(load_spec("XiaomiMiMo/MiMo-V2-Flash"))
    }
    # Keys of 192 and values of 128: 4 heads in 9 full layers, 8 in 39 windowed ones.
    assert caches == {None: (4 * 320.0, 9), 128: (8 * 320.0, 39)}
