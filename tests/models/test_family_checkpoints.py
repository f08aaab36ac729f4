"""A checkpoint's own quantisation: which modules, which format, and the bytes that follow."""

from __future__ import annotations

import time

import pytest

from tensor_cast import simulate
from tensor_cast.deployment import Deployment
from tensor_cast.devices.profile import DeviceProfile
from tensor_cast.errors import ModelingError
from tensor_cast.layers.schemes import UNQUANTIZED
from tensor_cast.memory import text_memory
from tensor_cast.models import load_spec
from tensor_cast.models.checkpoint import MODELOPT_SCHEMES, CheckpointQuantization, Rule
from tensor_cast.models.decoder import build
from tensor_cast.models.facts import model_facts
from tensor_cast.models.families import read_spec
from tensor_cast.models.spec import ModelSpec
from tensor_cast.ops import MatMul
from tensor_cast.workload import TextWorkload
from tests.models.test_catalog import config_of
from tests.small_models import latent

CHECKPOINT = Deployment(quantize_linear="CHECKPOINT")
# One layer: hidden 256, two heads of 128, MLP 512, vocabulary 1,000. Linear layers have 4 x 256 x 256 + 3 x 256 x 512
# weights; the rest, in bfloat16, is 2 x 1,000 x 256 of embedding and head, and 3 norms of 256.
TINY = {
    "model_type": "llama",
    "hidden_size": 256,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 512,
    "vocab_size": 1000,
}
ATTENTION, MLP = 4 * 256 * 256, 3 * 256 * 512
REST = (2 * 1000 * 256 + 3 * 256) * 2
# Output channels: queries, keys and values, the output; gate and up, down.
CHANNELS = 3 * 256 + 256 + 2 * 512 + 256


def tiny(quantization: object) -> ModelSpec:
    return read_spec({**TINY, "quantization_config": quantization}, name="tiny", where="config.json")


def weight_bytes(spec: ModelSpec) -> float:
    return model_facts(spec, deployment=CHECKPOINT).weight_bytes


def test_gpt_oss_120b_in_mxfp4() -> None:
    # 114,661,785,600 weights of experts at 4 bits and one 8-bit scale for 32; the other 2,167,371,072 in bfloat16.
    assert weight_bytes(load_spec("openai/gpt-oss-120b")) == 114_661_785_600 * 4.25 / 8 + 2_167_371_072 * 2
    assert weight_bytes(load_spec("openai/gpt-oss-120b")) == 65_248_815_744
    assert load_spec("openai/gpt-oss-120b").quantization == "W4A16_MXFP4"


def test_fp8_blocks() -> None:
    spec = tiny({"quant_method": "fp8", "weight_block_size": [128, 128], "activation_scheme": "dynamic"})
    # Blocks of 128 x 128, float32 scales: joint 256 x 768 has 12, the output 4, gate and up 16, down 8.
    assert weight_bytes(spec) == ATTENTION + MLP + (12 + 4 + 16 + 8) * 4 + REST
    assert spec.quantization == "FP8 in 128 x 128 blocks"
    e8m0 = tiny({"quant_method": "fp8", "weight_block_size": [128, 128], "scale_fmt": "ue8m0"})
    assert weight_bytes(e8m0) == ATTENTION + MLP + 40 + REST


def test_fp8_per_tensor_and_modules_left_out() -> None:
    spec = tiny(
        {"quant_method": "fp8", "activation_scheme": "static", "modules_to_not_convert": ["model.layers.0.mlp"]}
    )
    # A scale of the weight and one of its input, for two products.
    assert weight_bytes(spec) == ATTENTION + 2 * 2 * 4 + MLP * 2 + REST


@pytest.mark.parametrize(
    ("weights", "activations", "extra"),
    [
        # W8A8: an int8 weight, a bfloat16 scale a channel.
        (
            {"num_bits": 8, "type": "int", "strategy": "channel", "symmetric": True},
            {"num_bits": 8, "type": "int", "strategy": "token", "dynamic": True},
            CHANNELS * 2,
        ),
        # FP8 a channel, activations a token.
        (
            {"num_bits": 8, "type": "float", "strategy": "channel", "symmetric": True},
            {"num_bits": 8, "type": "float", "strategy": "token", "dynamic": True},
            CHANNELS * 2,
        ),
    ],
)
def test_compressed_tensors_w8a8(weights: dict[str, object], activations: dict[str, object], extra: int) -> None:
    group = {"targets": ["Linear"], "weights": weights, "input_activations": activations}
    config = {"quant_method": "compressed-tensors", "config_groups": {"group_0": group}, "ignore": ["lm_head"]}
    assert weight_bytes(tiny(config)) == ATTENTION + MLP + extra + REST


def test_compressed_tensors_int4_groups_with_patterns() -> None:
    weights = {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 32, "symmetric": True}
    group = {"targets": ["Linear"], "weights": weights, "input_activations": None}
    config = {
        "quant_method": "compressed-tensors",
        "config_groups": {"group_0": group},
        "ignore": ["lm_head", "re:.*self_attn.*"],
    }
    # The MLP alone, half a byte a weight and a bfloat16 scale for 32.
    assert weight_bytes(tiny(config)) == ATTENTION * 2 + MLP / 2 + MLP / 32 * 2 + REST


def test_nvfp4() -> None:
    spec = tiny({"quant_method": "modelopt", "quant_algo": "NVFP4", "ignore": ["lm_head", "model.layers.0.self_attn*"]})
    # Half a byte a weight, an FP8 scale for 16, two float32 scales for each of two products.
    assert weight_bytes(spec) == ATTENTION * 2 + MLP / 2 + MLP / 16 + 2 * 2 * 4 + REST


@pytest.mark.parametrize(("method", "zero_points"), [({"quant_method": "gptq"}, 1), ({"quant_method": "awq"}, 1)])
def test_int4_with_zero_points(method: dict[str, object], zero_points: int) -> None:
    spec = tiny({**method, "bits": 4, "group_size": 128})
    linear = ATTENTION + MLP
    # 4 + 16 / 128 + 4 / 128 = 4.15625 bits a weight.
    assert weight_bytes(spec) == linear * 4.15625 / 8 + REST
    symmetric = tiny({"quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": False})
    assert weight_bytes(symmetric) == linear * 4.125 / 8 + REST


def test_mixed_precision_by_layer() -> None:
    layers = {
        "model.layers.0.self_attn.q_proj": {"quant_algo": "FP8"},
        "model.layers.0.self_attn.o_proj": {"quant_algo": "FP8"},
        "model.layers.0.mlp.gate_proj": {"quant_algo": "W4A16_NVFP4", "group_size": 16},
        "lm_head": {"quant_algo": "W4A16_NVFP4", "group_size": 16},
    }
    spec = tiny({"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION", "quantized_layers": layers})
    embedding_and_norms = (1000 * 256 + 3 * 256) * 2
    head = 1000 * 256 * 4.5 / 8 + 4
    assert weight_bytes(spec) == (ATTENTION + 2 * 2 * 4) + (MLP * 4.5 / 8 + 2 * 4) + embedding_and_norms + head


def test_an_output_projection_has_a_format_of_its_own() -> None:
    # As NVIDIA's second NVFP4 of DeepSeek-R1 has it: of attention, the output projection alone is quantised.
    kept = [f"model.layers.0.self_attn.{name}_proj" for name in "qkv"]
    spec = tiny({"quant_method": "modelopt", "quant_algo": "NVFP4", "ignore": [*kept, "lm_head"]})
    output = 256 * 256
    fp4 = (output + MLP) * 4.5 / 8 + 3 * 2 * 4
    assert weight_bytes(spec) == (ATTENTION - output) * 2 + fp4 + REST
    schemes = spec.as_checkpoint().layers[0].schemes
    assert schemes is not None
    assert not schemes.attention.quantizes_weight
    assert schemes.attention_output == schemes.mlp == MODELOPT_SCHEMES["NVFP4"]


NVFP4 = {"quant_method": "modelopt", "quant_algo": "NVFP4"}


# The modules that families' checkpoints project attention's output with.
OUTPUTS = (
    "self_attn.o_proj", "attention.wo", "linear_attn.out_proj", "attention.dense", "mixer.o_proj", "mixer.out_proj",
    "attn.wo_b",
)  # fmt: skip


@pytest.mark.parametrize(
    ("model_id", "outputs", "projections"),
    [
        # Heads (of queries or values), their size, the hidden size; and layers, with two scales a projection.
        ("microsoft/Phi-3-mini-128k-instruct", 32 * (32 * 96 * 3072), 32),
        ("internlm/internlm2-7b", 32 * (32 * 128 * 4096), 32),
        ("inclusionAI/Ling-1T", 80 * (64 * 128 * 8192), 80),
        ("Qwen/Qwen3-Next-80B-A3B-Instruct", 12 * (16 * 256 * 2048) + 36 * (32 * 128 * 2048), 48),
        # 6 layers of attention and 23 of Mamba2.
        ("nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", 6 * (32 * 128 * 2688) + 23 * (64 * 64 * 2688), 29),
        # In two steps: 8 groups of 8 heads of 512 to 1,024 each, and these to the hidden size.
        ("deepseek-ai/DeepSeek-V4-Flash", 43 * (64 * 512 * 1024 + 8 * 1024 * 4096), 43 * (8 + 1)),
    ],
)
def test_every_family_knows_its_output_projections(model_id: str, outputs: float, projections: int) -> None:
    kept = [f"*.{name}" for name in OUTPUTS]
    quantized, unquantized = (
        weight_bytes(
            read_spec(
                {**config_of(model_id), "quantization_config": {**NVFP4, "ignore": ["lm_head", *ignored]}},
                name="a",
                where="config.json",
            )
        )
        for ignored in ([], kept)
    )
    assert unquantized - quantized == outputs * (2 - 4.5 / 8) - projections * 2 * 4


def test_an_output_projection_over_more_ranks_keeps_its_format() -> None:
    ignored = {**NVFP4, "ignore": [*(f"model.layers.*.self_attn.{name}_proj" for name in "qkv"), "lm_head"]}
    deployment = Deployment(world_size=2, tp_size=1, dp_size=2, o_proj_tp_size=2, quantize_linear="CHECKPOINT")
    estimate = simulate(
        tiny(ignored), device="B200_SXM", workload=TextWorkload(num_queries=4, query_length=8), deployment=deployment
    )
    formats = {kernel.op.part: kernel.op.matrix_dtype for kernel in estimate.kernels if isinstance(kernel.op, MatMul)}
    assert formats["attention.output"] == "fp4"
    assert formats["attention.qkv"] == "bfloat16"


def test_targets_may_be_patterns() -> None:
    group = {
        "weights": {"num_bits": 8, "type": "int", "strategy": "channel", "symmetric": True},
        "input_activations": {"num_bits": 8, "type": "int", "strategy": "token", "dynamic": True},
    }
    attention = {**group, "targets": ["re:.*self_attn.*"]}
    spec = tiny({"quant_method": "compressed-tensors", "config_groups": {"group_0": attention}})
    assert weight_bytes(spec) == ATTENTION + (3 * 256 + 256) * 2 + MLP * 2 + REST
    every = {**group, "targets": ["re:.*"]}
    spec = tiny({"quant_method": "compressed-tensors", "config_groups": {"group_0": every}, "ignore": ["lm_head"]})
    assert weight_bytes(spec) == ATTENTION + MLP + CHANNELS * 2 + REST
    broken = {**group, "targets": ["re:("]}
    with pytest.raises(ModelingError, match="not a regular expression"):
        tiny({"quant_method": "compressed-tensors", "config_groups": {"group_0": broken}})


def test_versions_of_nvfp4_deepseek_r1() -> None:
    # 61 output projections of 128 heads of 128 to 7,168, in bfloat16 or in 4.5 bits and two float32 scales.
    first, second = (weight_bytes(load_spec(f"nvidia/DeepSeek-R1-{name}")) for name in ("NVFP4", "0528-NVFP4-v2"))
    assert first - second == 61 * (128 * 128 * 7168 * (2 - 4.5 / 8) - 2 * 4)
    layer = load_spec("nvidia/DeepSeek-R1-NVFP4").as_checkpoint().layers[3].schemes
    assert layer is not None
    assert layer.shared_experts == layer.experts == MODELOPT_SCHEMES["NVFP4"]
    assert not layer.attention.quantizes_weight


def test_deepseek_v4_has_fp4_experts_among_fp8_layers() -> None:
    spec = load_spec("deepseek-ai/DeepSeek-V4-Flash").as_checkpoint()
    schemes = spec.layers[5].schemes
    assert schemes is not None
    assert (schemes.attention.weight_dtype, schemes.experts.weight_dtype) == ("fp8", "fp4")
    assert schemes.experts.activation_dtype == "fp8"


def test_experts_of_gemma_4_are_quantised_and_its_dense_blocks_not() -> None:
    schemes = load_spec("nvidia/Gemma-4-26B-A4B-NVFP4").as_checkpoint().layers[0].schemes
    assert schemes is not None
    assert schemes.experts == MODELOPT_SCHEMES["NVFP4"]
    assert not schemes.mlp.quantizes_weight
    assert not schemes.attention.quantizes_weight


def test_a_model_without_quantisation_has_no_checkpoint_scheme() -> None:
    with pytest.raises(ModelingError, match="CHECKPOINT needs a quantization_config, which the config of tiny has not"):
        model_facts(read_spec(TINY, name="tiny", where="config.json"), deployment=CHECKPOINT)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"quant_method": "bitsandbytes"}, r"quantization_config.quant_method is 'bitsandbytes', expected one of fp8"),
        ({"quant_method": "modelopt", "quant_algo": "INT3"}, "quant_algo is 'INT3', expected one of NVFP4"),
        ({"quant_method": "gptq", "bits": 3}, "bits is 3, expected 4 or 8"),
    ],
)
def test_an_unknown_format_matters_only_to_who_asks_for_it(config: dict[str, object], message: str) -> None:
    spec = tiny(config)
    assert spec.quantization is None
    assert "own quantisation is not known and left out" in spec.notes[0]
    # The weights of the plain config, in bfloat16.
    assert model_facts(spec, deployment=Deployment()).weight_bytes == (ATTENTION + MLP) * 2 + REST
    with pytest.raises(ModelingError, match=message):
        weight_bytes(spec)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ("fp8", "quantization_config is 'fp8', expected an object"),
        ({"quant_method": 8}, "quant_method is 8, expected a string"),
        ({"quant_method": "fp8", "weight_block_size": [128]}, "weight_block_size is .* expected two equal"),
        ({"quant_method": "fp8", "weight_block_size": ["128", "128"]}, "weight_block_size is .* expected two equal"),
        (
            {"quant_method": "fp8", "ignored_layers": ["re:(mlp"]},
            r"ignored_layers holds 're:\(mlp', which is not a reg",
        ),
        ({"quant_method": "compressed-tensors"}, "config_groups is missing"),
        (
            {
                "quant_method": "compressed-tensors",
                "config_groups": {"all": {"weights": {"num_bits": 4, "strategy": "group"}}},
            },
            "group_size is None, expected the weights that share a scale",
        ),
        (
            {
                "quant_method": "compressed-tensors",
                "config_groups": {"all": {"weights": {"num_bits": 8, "strategy": "tensor_group"}}},
            },
            "group_size is None, expected the weights that share a scale",
        ),
        (
            {
                "quant_method": "modelopt",
                "quant_algo": "MIXED_PRECISION",
                "quantized_layers": {"a": {"quant_algo": {}}},
            },
            "quantized_layers is .* expected an object whose quant_algo is",
        ),
    ],
)
def test_a_malformed_quantisation_is_refused(config: object, message: str) -> None:
    with pytest.raises(ModelingError, match=message):
        tiny(config)


@pytest.mark.parametrize(
    ("pattern", "name", "covered"),
    [
        ("lm_head", "lm_head", True),
        ("model.layers.1", "model.layers.1.mlp.up_proj", True),
        ("model.layers.1", "model.layers.11.mlp.up_proj", False),
        ("model.layers.1.self_attn*", "model.layers.1.self_attn.q_proj", True),
        ("model.layers.*.self_attn", "model.layers.7.self_attn.q_proj", True),
        ("re:.*shared_experts.*", "model.layers.7.mlp.shared_experts.up_proj", True),
        ("re:.*mlp\\.(gate|up)_proj", "model.layers.7.mlp.experts.0.up_proj", False),
    ],
)
def test_patterns(pattern: str, name: str, covered: bool) -> None:
    fp8 = MODELOPT_SCHEMES["FP8"]
    checkpoint = CheckpointQuantization("FP8", (Rule(frozenset("*"), fp8),), ignored=(pattern,))
    assert checkpoint.scheme((name,)) == (UNQUANTIZED if covered else fp8)


def test_a_thousand_names_that_stay_unquantised_cost_no_time() -> None:
    names = [f"model.layers.{index}.mlp.experts.{expert}" for index in range(100) for expert in range(20)]
    layers = {"num_hidden_layers": 100, "quantization_config": {"quant_method": "fp8", "ignored_layers": names}}
    spec = read_spec({**TINY, **layers}, name="tiny", where="config.json")
    started = time.perf_counter()
    spec.as_checkpoint()
    # Comparing each of 2,000 names with each of 40 of a layer takes seconds.
    assert time.perf_counter() - started < 0.5


def test_a_drafting_module_is_quantised_as_the_layer_after_the_last() -> None:
    fp8 = {"quant_method": "fp8", "weight_block_size": [32, 32]}

    def bytes_of(layers: int, drafts: int, **quantization: object) -> float:
        spec = latent(num_hidden_layers=layers, quantization_config={**fp8, **quantization})
        workload = TextWorkload(num_queries=1, query_length=3, context_length=9, decode=True, num_mtp_tokens=drafts)
        step = build(spec, workload, CHECKPOINT)
        memory = text_memory(spec, step, workload, CHECKPOINT, DeviceProfile.all_device_profiles["TEST_DEVICE"])
        return float(memory.weights_bytes)

    plain = bytes_of(4, 0)
    layer = bytes_of(5, 0) - plain
    # Beside its layer: three norms of 1,024 and the projection of twice 1,024, which no engine quantises.
    around = 2 * (3 * 1024 + 2 * 1024 * 1024)
    assert bytes_of(4, 2) - plain == layer + around
    # Left out by name, it stays as wide as the model's dtype.
    for pattern in ("model.layers.4*", "mtp.layers.0*"):
        wide = bytes_of(4, 2, modules_to_not_convert=[pattern]) - plain
        assert wide > 1.9 * (layer + around) - around


def test_every_draft_uses_the_checkpoints_output_head() -> None:
    spec = load_spec("nvidia/Qwen3.6-27B-NVFP4")
    workload = TextWorkload(num_queries=1, query_length=3, context_length=9, decode=True, num_mtp_tokens=2)
    nodes = build(spec, workload, CHECKPOINT).graph.nodes()
    heads = {block.name: node.op.name for block, node in nodes if node.op.part.endswith("lm_head")}
    assert heads == dict.fromkeys(("head", "mtp.first", "mtp.next"), "weight_quant_matmul")
