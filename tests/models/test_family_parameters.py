"""Parameters of every kind of model in the catalog, exact.

The totals are those of each model's reference class in the transformers library (v5, counted on the meta device,
without buffers such as router correction biases and without MTP layers), or, where the library has no class, what the
structure gives, close to the published size; docs/models.md says which differ and why.
"""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from tensor_cast.errors import ModelingError
from tensor_cast.models import catalog, load_spec
from tensor_cast.models.families import read_spec
from tensor_cast.models.parameters import count_parameters

# (catalog id, total, active for one text token, of the vision encoder)
COUNTS = [
    ("01-ai/Yi-34B", 34_388_917_248, 34_388_917_248, 0),
    ("MiniMaxAI/MiniMax-M2", 228_689_748_992, 11_030_537_216, 0),
    ("MiniMaxAI/MiniMax-M3", 426_174_565_632, 25_962_466_560, 0),
    ("Qwen/Qwen2.5-0.5B", 494_032_768, 494_032_768, 0),
    ("Qwen/Qwen2.5-14B", 14_770_033_664, 14_770_033_664, 0),
    ("Qwen/Qwen2.5-32B", 32_763_876_352, 32_763_876_352, 0),
    ("Qwen/Qwen2.5-3B", 3_085_938_688, 3_085_938_688, 0),
    ("Qwen/Qwen2.5-72B", 72_706_203_648, 72_706_203_648, 0),
    ("Qwen/Qwen2.5-7B", 7_615_616_512, 7_615_616_512, 0),
    ("Qwen/Qwen2.5-VL-7B-Instruct", 8_292_166_656, 7_615_616_512, 676_550_144),
    ("Qwen/Qwen3-0.6B", 596_049_920, 596_049_920, 0),
    ("Qwen/Qwen3-1.7B", 1_720_574_976, 1_720_574_976, 0),
    ("Qwen/Qwen3-14B", 14_768_307_200, 14_768_307_200, 0),
    ("Qwen/Qwen3-235B-A22B", 235_093_634_560, 22_190_763_520, 0),
    ("Qwen/Qwen3-30B-A3B", 30_532_122_624, 3_353_032_704, 0),
    ("Qwen/Qwen3-32B", 32_762_123_264, 32_762_123_264, 0),
    ("Qwen/Qwen3-4B", 4_022_468_096, 4_022_468_096, 0),
    ("Qwen/Qwen3-8B", 8_190_735_360, 8_190_735_360, 0),
    ("Qwen/Qwen3-Coder-480B-A35B-Instruct", 480_154_875_392, 35_474_765_312, 0),
    ("Qwen/Qwen3-Next-80B-A3B-Instruct", 79_674_391_296, 3_874_929_408, 0),
    ("Qwen/Qwen3-VL-235B-A22B-Instruct", 235_670_022_896, 22_190_763_520, 576_388_336),
    ("Qwen/Qwen3-VL-2B-Instruct", 2_127_532_032, 1_720_574_976, 406_957_056),
    ("Qwen/Qwen3-VL-30B-A3B-Instruct", 31_070_754_032, 3_353_032_704, 538_631_408),
    ("Qwen/Qwen3-VL-32B-Instruct", 33_357_390_064, 32_762_123_264, 595_266_800),
    ("Qwen/Qwen3-VL-4B-Instruct", 4_437_815_808, 4_022_468_096, 415_347_712),
    ("Qwen/Qwen3-VL-8B-Instruct", 8_767_123_696, 8_190_735_360, 576_388_336),
    ("Qwen/Qwen3.5-122B-A10B", 122_111_526_912, 9_771_288_576, 451_290_864),
    ("Qwen/Qwen3.5-27B", 26_895_998_464, 26_895_998_464, 460_730_096),
    ("Qwen/Qwen3.5-35B-A3B", 34_660_610_688, 3_454_988_928, 446_571_248),
    ("Qwen/Qwen3.5-397B-A17B", 396_346_350_336, 17_349_040_896, 456_010_480),
    ("Qwen/Qwen3.5-9B", 8_953_803_264, 8_953_803_264, 456_010_480),
    ("RedHatAI/Llama-4-Scout-17B-16E-Instruct-FP8-dynamic", 107_769_861_120, 17_172_894_720, 871_932_416),
    ("XiaomiMiMo/MiMo-7B-Base", 7_622_619_136, 7_622_619_136, 0),
    ("XiaomiMiMo/MiMo-V2-Flash", 308_778_768_832, 15_445_924_288, 0),
    ("baidu/ERNIE-4.5-21B-A3B-PT", 21_825_436_160, 3_352_148_480, 0),
    ("codellama/CodeLlama-34b-Instruct-hf", 33_743_970_304, 33_743_970_304, 0),
    ("deepseek-ai/DeepSeek-R1", 671_026_404_352, 37_552_282_624, 0),
    ("deepseek-ai/DeepSeek-V2", 235_741_434_880, 21_375_800_320, 0),
    ("deepseek-ai/DeepSeek-V2-Lite", 15_706_484_224, 2_661_150_208, 0),
    ("deepseek-ai/DeepSeek-V3.2", 671_877_929_216, 38_403_807_488, 0),
    ("deepseek-ai/DeepSeek-V4-Flash", 284_332_230_231, 13_799_622_231, 0),
    ("deepseek-ai/DeepSeek-V4-Pro", 1_572_997_179_491, 49_779_058_787, 0),
    ("google/gemma-2-27b", 27_227_128_320, 27_227_128_320, 0),
    ("google/gemma-2-2b", 2_614_341_888, 2_614_341_888, 0),
    ("google/gemma-2-9b", 9_241_705_984, 9_241_705_984, 0),
    ("google/gemma-3-12b-it", 12_187_325_040, 11_766_034_176, 421_290_864),
    ("google/gemma-3-1b-it", 999_885_952, 999_885_952, 0),
    ("google/gemma-3-27b-it", 27_432_406_640, 27_009_346_304, 423_060_336),
    ("google/gemma-3-4b-it", 4_300_079_472, 3_880_263_168, 419_816_304),
    ("google/gemma-4-26B-A4B", 25_805_933_872, 3_822_530_560, 572_792_112),
    ("google/gemma-4-31B-it", 31_273_086_512, 30_697_345_280, 575_741_232),
    ("inclusionAI/Ling-1T", 999_705_309_184, 51_054_407_680, 0),
    ("internlm/internlm2-7b", 7_737_708_544, 7_737_708_544, 0),
    ("meta-llama/Llama-2-13b-hf", 13_015_864_320, 13_015_864_320, 0),
    ("meta-llama/Llama-2-70b-hf", 68_976_648_192, 68_976_648_192, 0),
    ("meta-llama/Llama-2-7b-chat-hf", 6_738_415_616, 6_738_415_616, 0),
    ("meta-llama/Llama-3.1-405B", 405_853_388_800, 405_853_388_800, 0),
    ("meta-llama/Llama-3.1-70B", 70_553_706_496, 70_553_706_496, 0),
    ("meta-llama/Llama-3.1-8B", 8_030_261_248, 8_030_261_248, 0),
    ("meta-llama/Llama-3.2-1B", 1_235_814_400, 1_235_814_400, 0),
    ("meta-llama/Llama-3.2-3B", 3_212_749_824, 3_212_749_824, 0),
    ("meta-llama/Llama-4-Maverick-17B-128E-Instruct", 400_711_848_960, 17_184_691_200, 0),
    ("meta-llama/Llama-4-Scout-17B-16E-Instruct", 107_769_861_120, 17_172_894_720, 0),
    ("microsoft/Phi-3-mini-128k-instruct", 3_821_079_552, 3_821_079_552, 0),
    ("microsoft/Phi-3.5-MoE-instruct", 41_873_153_344, 6_640_999_744, 0),
    ("microsoft/Phi-mini-MoE-instruct", 7_647_632_704, 2_362_809_664, 0),
    ("microsoft/phi-4", 14_659_507_200, 14_659_507_200, 0),
    ("mistralai/Mistral-7B-Instruct-v0.3", 7_248_023_552, 7_248_023_552, 0),
    ("mistralai/Mistral-7B-v0.1", 7_241_732_096, 7_241_732_096, 0),
    ("mistralai/Mistral-Nemo-Base-2407", 12_247_782_400, 12_247_782_400, 0),
    ("mistralai/Mixtral-8x22B-v0.1", 140_620_634_112, 39_152_031_744, 0),
    ("mistralai/Mixtral-8x7B-Instruct-v0.1", 46_702_792_704, 12_879_925_248, 0),
    ("moonshotai/Kimi-K2-Instruct", 1_026_408_209_408, 32_861_477_888, 0),
    ("moonshotai/Kimi-K2.5", 1_026_879_353_328, 32_861_477_888, 471_143_920),
    ("nvidia/GLM-5.1-NVFP4", 743_911_199_232, 41_784_709_632, 0),
    ("nvidia/GLM-5.2-NVFP4", 743_377_000_704, 41_250_511_104, 0),
    ("nvidia/Llama-3_3-Nemotron-Super-49B-v1", 49_867_145_216, 49_867_145_216, 0),
    ("nvidia/MiniMax-M3-NVFP4", 427_040_132_864, 25_962_466_560, 865_567_232),
    ("nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", 31_577_937_344, 3_580_073_408, 0),
    ("nvidia/NVIDIA-Nemotron-3-Super-120B-A12B-BF16", 120_668_687_360, 12_770_216_960, 0),
    ("nvidia/NVIDIA-Nemotron-3-Ultra-550B-A55B-BF16", 549_308_968_960, 56_058_818_560, 0),
    ("nvidia/Nemotron-H-56B-Base-8K", 56_324_350_464, 56_324_350_464, 0),
    ("openai/gpt-oss-120b", 116_829_156_672, 5_711_982_912, 0),
    ("openai/gpt-oss-20b", 20_914_757_184, 4_187_440_704, 0),
    ("stepfun-ai/Step-3.7-Flash", 195_844_496_640, 10_875_690_240, 0),
    ("zai-org/GLM-4.5", 352_797_814_784, 33_632_251_904, 0),
    ("zai-org/GLM-4.5-Air", 106_852_245_504, 13_424_123_904, 0),
    ("openbmb/MiniCPM3-4B", 4_073_875_968, 4_073_875_968, 0),
    ("mistralai/Devstral-2-123B-Instruct-2512", 125_025_988_608, 125_025_988_608, 0),
    ("zai-org/GLM-4.7-Flash", 29_943_390_976, 3_896_763_136, 0),
]


@pytest.mark.parametrize(("model", "total", "active", "vision"), COUNTS, ids=[row[0] for row in COUNTS])
def test_parameters_of_the_catalog(model: str, total: int, active: int, vision: int) -> None:
    parameters = count_parameters(load_spec(model))
    assert (parameters.total, parameters.active, parameters.vision) == (total, active, vision)


GEMMA_7B = {
    "model_type": "gemma",
    "hidden_size": 3072,
    "num_hidden_layers": 28,
    "num_attention_heads": 16,
    "num_key_value_heads": 16,
    "head_dim": 256,
    "intermediate_size": 24576,
    "vocab_size": 256000,
}
COMMAND_R = {
    "model_type": "cohere",
    "hidden_size": 8192,
    "num_hidden_layers": 40,
    "num_attention_heads": 64,
    "num_key_value_heads": 64,
    "intermediate_size": 22528,
    "vocab_size": 256000,
    "logit_scale": 0.0625,
}
QWEN2_VL_7B = {
    "model_type": "qwen2_vl",
    "hidden_size": 3584,
    "num_hidden_layers": 28,
    "num_attention_heads": 28,
    "num_key_value_heads": 4,
    "intermediate_size": 18944,
    "vocab_size": 152064,
    "tie_word_embeddings": False,
    "vision_config": {
        "depth": 32,
        "embed_dim": 1280,
        "mlp_ratio": 4,
        "num_heads": 16,
        "hidden_size": 3584,
        "patch_size": 14,
    },
}
GLM_41V_9B = {
    "model_type": "glm4v",
    "text_config": {
        "model_type": "glm4v_text",
        "hidden_size": 4096,
        "num_hidden_layers": 40,
        "num_attention_heads": 32,
        "num_key_value_heads": 2,
        "intermediate_size": 13696,
        "vocab_size": 151552,
        "attention_bias": True,
    },
    "vision_config": {
        "hidden_size": 1536,
        "depth": 24,
        "num_heads": 12,
        "intermediate_size": 13696,
        "out_hidden_size": 4096,
        "image_size": 336,
        "patch_size": 14,
    },
}


@pytest.mark.parametrize(
    ("config", "total"),
    [
        (GEMMA_7B, 8_537_680_896),
        (COMMAND_R, 34_980_831_232),
        (QWEN2_VL_7B, 8_291_375_616),
        (GLM_41V_9B, 10_292_777_472),
    ],
)
def test_parameters_of_models_beyond_the_catalog(config: dict[str, object], total: int) -> None:
    spec = read_spec(config, name="model", where="config.json")
    assert count_parameters(spec).total == total
    assert spec.ignored_keys == ()


def test_every_catalog_model_is_read_and_its_keys_are_known() -> None:
    refused, ignored = [], {}
    for model in catalog.catalog_ids():
        entry = catalog.find(model)
        assert entry is not None
        if entry.pipeline is not None:
            continue
        try:
            spec = load_spec(model)
        except ModelingError:
            refused.append(model)
            continue
        if spec.ignored_keys:
            ignored[model] = spec.ignored_keys
    assert ignored == {}
    # Its config names parts whose shapes it does not give.
    assert refused == ["moonshotai/Kimi-K3"]


def test_the_vision_encoder_counts_where_the_reference_class_has_it() -> None:
    # Qwen3VLForConditionalGeneration includes it; Qwen3_5ForCausalLM, whose count is published, is the language model.
    qwen3_vl = count_parameters(load_spec("Qwen/Qwen3-VL-8B-Instruct"))
    assert qwen3_vl.total == qwen3_vl.language_model + qwen3_vl.vision
    qwen3_5 = count_parameters(load_spec("Qwen/Qwen3.5-27B"))
    assert qwen3_5.total == qwen3_5.language_model


COLLECTION = Path(__file__).parents[3] / "shared" / "model_configs"
# Counted in the reference class although they are buffers elsewhere: ERNIE's e_score_correction_bias, 64 in 27 layers.
EXPLAINED = {"reconstructed--baidu--ERNIE-4.5-21B-A3B-PT.config.json": 27 * 64}


def _collection() -> list[tuple[str, dict[str, object], int]]:
    """Configs with counted parameters that a wider collection beside the checkout holds; none where it is absent."""
    provenance = COLLECTION / "provenance.csv"
    if not provenance.is_file():
        return []
    with provenance.open(encoding="utf-8") as file:
        counted = {row["file"]: int(row["params_counted"]) for row in csv.DictReader(file) if row["params_counted"]}
    return [
        (name, json.loads((COLLECTION / name).read_text(encoding="utf-8")), total)
        for name, total in counted.items()
        if name.endswith(".config.json") and (COLLECTION / name).is_file()
    ]


def test_the_wider_collection_agrees() -> None:
    wrong = {}
    for name, config, total in _collection():
        found = count_parameters(read_spec(config, name=name, where=name)).total
        if found + EXPLAINED.get(name, 0) != total:
            wrong[name] = (found, total)
    assert wrong == {}
