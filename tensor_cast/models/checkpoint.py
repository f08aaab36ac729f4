"""A checkpoint's own quantisation: ``quantization_config`` read into the scheme of each module of each layer."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from functools import cached_property
from itertools import accumulate
from typing import Any

from tensor_cast.errors import ModelingError
from tensor_cast.layers.decoder_layer import DecoderLayer
from tensor_cast.layers.schemes import UNQUANTIZED, ModuleSchemes
from tensor_cast.models.config import Config
from tensor_cast.quantization import LINEAR_SCHEMES, Granularity, LinearScheme

# Where checkpoints keep layer i: plain, under a wrapper, and in DeepSeek's own naming.
LAYER_PREFIXES = (
    "model.layers.{}.",
    "model.language_model.layers.{}.",
    "language_model.model.layers.{}.",
    "backbone.layers.{}.",
    "layers.{}.",
)
# Where checkpoints keep their multi-token-prediction module: as the layer after the last, or apart (Qwen).
DRAFT_PREFIXES = (*LAYER_PREFIXES, "mtp.layers.0.")
HEAD_NAMES = ("lm_head", "language_model.lm_head", "head")


class UnknownFormatError(ModelingError):
    """A quantisation that is well described and not modelled: of no matter to who prices the model otherwise."""


@dataclass(frozen=True)
class ModuleNames:
    """One linear module of each kind, by the names that checkpoints have for it; its kind shares its scheme."""

    attention: tuple[str, ...] = ("self_attn.q_proj", "self_attn.q_a_proj", "self_attn.qkv_proj", "attention.wqkv")
    attention_output: tuple[str, ...] = ("self_attn.o_proj", "attention.wo")
    mlp: tuple[str, ...] = ("mlp.gate_proj", "mlp.up_proj", "mlp.gate_up_proj", "feed_forward.w1")
    shared_experts: tuple[str, ...] = ("mlp.shared_experts.gate_proj", "mlp.shared_expert.gate_proj")
    experts: tuple[str, ...] = ("mlp.experts.0.gate_proj", "mlp.experts")


@dataclass(frozen=True)
class Rule:
    """``scheme`` for modules that one of ``targets`` names: one, all that a ``re:`` pattern matches, or any (``*``)."""

    targets: frozenset[str]
    scheme: LinearScheme

    def covers(self, names: tuple[str, ...]) -> bool:
        """Whether it names one of ``names``, or every linear layer."""
        if "*" in self.targets or not self.targets.isdisjoint(names):
            return True
        patterns = (target for target in self.targets if target.startswith("re:"))
        return any(_matches(pattern, name) for pattern in patterns for name in names)


@dataclass(frozen=True)
class CheckpointQuantization:
    """Rules, the first that covers a module deciding, and patterns of modules that stay unquantised."""

    words: str
    rules: tuple[Rule, ...]
    ignored: tuple[str, ...] = ()
    names: ModuleNames = field(default_factory=ModuleNames)
    experts: LinearScheme | None = None

    def scheme(self, names: tuple[str, ...]) -> LinearScheme:
        """Scheme of the module that goes by one of ``names``."""
        if any(self._ignores(name) for name in names):
            return UNQUANTIZED
        return next((rule.scheme for rule in self.rules if rule.covers(names)), UNQUANTIZED)

    def _ignores(self, name: str) -> bool:
        """Whether a pattern covers ``name``, or a plain name it or what it is under."""
        above = accumulate(name.split("."), lambda outer, inner: f"{outer}.{inner}")
        return not self._plain.isdisjoint(above) or any(_matches(pattern, name) for pattern in self._patterns)

    @cached_property
    def _plain(self) -> frozenset[str]:
        # Published configs list every unquantised module of every layer, more than a thousand names.
        return frozenset(self.ignored).difference(self._patterns)

    @cached_property
    def _patterns(self) -> tuple[str, ...]:
        return tuple(pattern for pattern in self.ignored if pattern.startswith("re:") or "*" in pattern)

    def head(self) -> LinearScheme:
        """Scheme of the output head, which stays unquantised unless a rule names it."""
        if any(self._ignores(name) for name in HEAD_NAMES):
            return UNQUANTIZED
        named = [rule for rule in self.rules if "*" not in rule.targets]
        return next((rule.scheme for rule in named if rule.covers(HEAD_NAMES)), UNQUANTIZED)

    def layer(self, index: int) -> ModuleSchemes:
        """Schemes of layer ``index``."""
        return self._schemes(tuple(prefix.format(index) for prefix in LAYER_PREFIXES))

    def drafting(self, layers: int) -> ModuleSchemes:
        """Schemes of the multi-token-prediction module of a model of so many ``layers``."""
        return self._schemes(tuple(prefix.format(layers) for prefix in DRAFT_PREFIXES))

    def _schemes(self, prefixes: tuple[str, ...]) -> ModuleSchemes:
        """Schemes of the modules that a checkpoint has under one of ``prefixes``."""

        def of(modules: tuple[str, ...]) -> LinearScheme:
            return self.scheme(tuple(prefix + name for prefix in prefixes for name in modules))

        experts = of(self.names.experts)
        if self.experts is not None and experts.quantizes_weight:
            experts = self.experts
        attention, output = of(self.names.attention), of(self.names.attention_output)
        return ModuleSchemes(
            attention=attention,
            mlp=of(self.names.mlp),
            shared_experts=of(self.names.shared_experts),
            experts=experts,
            head=self.head(),
            attention_output=None if output == attention else output,
        )

    def quantized(self, layers: tuple[DecoderLayer, ...]) -> tuple[DecoderLayer, ...]:
        """The layers with their schemes; layers that stay equal stay one object."""
        made: dict[tuple[int, ModuleSchemes], DecoderLayer] = {}
        out = []
        for index, layer in enumerate(layers):
            schemes = self.layer(index)
            key = (id(layer), schemes)
            if key not in made:
                made[key] = replace(layer, schemes=schemes)
            out.append(made[key])
        return tuple(out)


def _matches(pattern: str, name: str) -> bool:
    """``re:`` patterns are regular expressions; in others ``*`` is a wildcard, and they cover what is under them."""
    if pattern.startswith("re:"):
        return re.match(pattern[3:], name) is not None
    return fnmatchcase(name, pattern) or fnmatchcase(name, f"{pattern}.*")


# Weight-only and weight-and-activation formats of published checkpoints. Scales: FP8 blocks float32 (DeepSeek-V3), or
# E8M0 (scale_fmt ue8m0); NVFP4 an FP8 scale for 16 values and float32 scales of the weight and of its input (NVIDIA
# ModelOpt); MXFP4 and MXFP8 an E8M0 scale for 32 (OCP Microscaling Formats v1.0).
NVFP4 = LinearScheme(
    "NVFP4", "fp4", "fp4", "fp4", dynamic=True, granularity="group", group_size=16, scale_dtype="fp8", tensor_scales=2
)
NVFP4_WEIGHT_ONLY = LinearScheme(
    "W4A16_NVFP4", weight_dtype="fp4", granularity="group", group_size=16, scale_dtype="fp8", tensor_scales=1
)
MXFP4_WEIGHT_ONLY = LinearScheme(
    "W4A16_MXFP4", weight_dtype="fp4", granularity="group", group_size=32, scale_dtype="e8m0"
)
MXFP8 = LinearScheme("MXFP8", "fp8", "fp8", "fp8", dynamic=True, granularity="group", group_size=32, scale_dtype="e8m0")
FP8_TENSOR = LinearScheme("FP8 per tensor", "fp8", "fp8", "fp8", granularity="tensor", tensor_scales=1)
FP8_TENSOR_DYNAMIC = LinearScheme("FP8 per tensor, dynamic", "fp8", "fp8", "fp8", dynamic=True, granularity="tensor")

MODELOPT_SCHEMES = {
    "NVFP4": NVFP4,
    "W4A16_NVFP4": NVFP4_WEIGHT_ONLY,
    "W4A16_MXFP4": MXFP4_WEIGHT_ONLY,
    "MXFP8": MXFP8,
    "FP8": FP8_TENSOR,
}


def checkpoint_quantization(config: Config, names: ModuleNames) -> CheckpointQuantization | None:
    """What ``quantization_config`` says, ``None`` where there is none.

    Raises:
        UnknownFormatError: it is of a format that is not modelled.
        ModelingError: it is malformed.
    """
    if not config.has("quantization_config"):
        return None
    quantization = config.child("quantization_config")
    method = quantization.text("quant_method", "modelopt")
    reader = READERS.get(method)
    if reader is None:
        quantization.fail("quant_method", f"one of {', '.join(READERS)}", error=UnknownFormatError)
    return replace(reader(quantization), names=names)


def _ignored(config: Config, *keys: str) -> tuple[str, ...]:
    """Names and patterns of modules that stay unquantised, norms left out, which never are."""
    found: list[str] = []
    for key in keys:
        for name in config.items(key) or []:
            if not isinstance(name, str):
                config.fail(key, "a list of strings")
            if "layernorm" not in name:
                found.append(_checked(config, key, name))
    return tuple(found)


def _checked(config: Config, key: str, pattern: str) -> str:
    if pattern.startswith("re:"):
        try:
            re.compile(pattern[3:])
        except re.error as error:
            raise config.error(f"{key} holds {pattern!r:.60}, which is not a regular expression: {error}.") from None
    return pattern


def _fp8(config: Config) -> CheckpointQuantization:
    """DeepSeek's FP8: blocks with float32 or E8M0 scales, activations a token and group; else per tensor."""
    ignored = _ignored(config, "modules_to_not_convert", "ignored_layers", "ignore")
    everything = frozenset("*")
    if not config.has("weight_block_size"):
        static = config.text("activation_scheme", "dynamic") == "static"
        scheme = FP8_TENSOR if static else FP8_TENSOR_DYNAMIC
        return CheckpointQuantization(f"{scheme.name} weights", (Rule(everything, scheme),), ignored)
    size = _block_size(config, "weight_block_size")
    e8m0 = config.text("scale_fmt", "float32") == "ue8m0"
    scheme = LinearScheme(
        f"FP8 in {size} x {size} blocks",
        "fp8",
        "fp8",
        "fp8",
        dynamic=True,
        granularity="block",
        group_size=size,
        scale_dtype="e8m0" if e8m0 else "float32",
    )
    # NVIDIA's NVFP4 re-quantisation of DeepSeek-V4 changes the experts alone; its own list of them says so.
    if config.text("moe_quant_algo", "") == "NVFP4":
        return CheckpointQuantization(f"{scheme.name}, experts NVFP4", (Rule(everything, scheme),), (), experts=NVFP4)
    return CheckpointQuantization(scheme.name, (Rule(everything, scheme),), ignored)


def _block_size(config: Config, key: str) -> int:
    """The side of the squares that share a scale."""
    block = config.items(key) or []
    if len(block) != 2 or any(type(side) is not int or side < 1 or side != block[0] for side in block):
        config.fail(key, "two equal whole numbers")
    return int(block[0])


def _compressed_tensors(config: Config) -> CheckpointQuantization:
    """compressed-tensors: groups of targets, each with a format of weights and of activations."""
    rules, words = [], []
    groups = config.child("config_groups")
    for key in groups.values:
        group = groups.child(key)
        scheme = _group_scheme(group, group.text("format", config.text("format", "")))
        targets = [_checked(group, "targets", str(target)) for target in group.items("targets") or ["Linear"]]
        rules.append(Rule(frozenset("*") if "Linear" in targets else frozenset(targets), scheme))
        words.append(scheme.name)
    return CheckpointQuantization(", ".join(words), tuple(rules), _ignored(config, "ignore"))


STORED = {(8, "int"): "int8", (4, "int"): "int4", (8, "float"): "fp8", (4, "float"): "fp4"}
"""Formats by ``num_bits`` and ``type`` of compressed-tensors."""
GRANULARITIES: dict[str, Granularity] = {
    "tensor": "tensor",
    "channel": "channel",
    "group": "group",
    "block": "block",
    "tensor_group": "group",
}
"""Weights that share a scale, by ``strategy`` of compressed-tensors; ``tensor_group`` has one of the whole too."""


def _group_scheme(group: Config, layout: str) -> LinearScheme:
    """One of compressed-tensors' groups as a scheme."""
    weights = group.child("weights")
    stored = STORED.get((weights.integer("num_bits"), weights.text("type", "int")))
    if stored is None:
        weights.fail("num_bits", "4 or 8, with type int or float", error=UnknownFormatError)
    strategy, size = _strategy(weights)
    symmetric = weights.boolean("symmetric", True)
    active = group.has("input_activations")
    dynamic = strategy == "tensor_group" or (active and _is_dynamic(group.child("input_activations")))
    if stored == "fp4":
        if layout.startswith("mxfp4") or size == 32:
            return replace(LINEAR_SCHEMES["MXFP4"] if active else MXFP4_WEIGHT_ONLY, group_size=size or 32)
        return NVFP4 if active else NVFP4_WEIGHT_ONLY
    name = f"{stored.upper()} {strategy}" + (f" of {size}" if size else "") + ("" if active else ", weights only")
    return LinearScheme(
        name,
        stored,
        stored if active else None,
        stored if active else None,
        dynamic=dynamic,
        granularity=GRANULARITIES[strategy],
        group_size=size,
        scale_dtype="bfloat16" if not active or strategy == "channel" else "float32",
        zero_point_dtype=None if symmetric else stored,
        tensor_scales=1 if active and not dynamic else 0,
    )


def _strategy(weights: Config) -> tuple[str, int]:
    """Which weights share a scale, one of ``GRANULARITIES``, and how many a side; 0 where no size says."""
    size = weights.optional_integer("group_size") or 0
    strategy = weights.text("strategy", "group" if size else "tensor")
    if strategy not in GRANULARITIES:
        weights.fail("strategy", f"one of {', '.join(GRANULARITIES)}", error=UnknownFormatError)
    if strategy == "block":
        return strategy, _block_size(weights, "block_structure")
    if GRANULARITIES[strategy] == "group" and not size:
        weights.fail("group_size", "the weights that share a scale")
    return strategy, size


def _is_dynamic(activations: Config) -> bool:
    """``true``, ``false``, or ``"local"``: measured for each group."""
    return activations.has("dynamic") and bool(activations.values["dynamic"])


def _modelopt(config: Config) -> CheckpointQuantization:
    """NVIDIA ModelOpt: one algorithm, or one for each listed layer."""
    ignored = _ignored(config, "ignore", "exclude_modules")
    algorithm = config.text("quant_algo", "")
    for decided in ("config_groups", "group_size", "kv_cache_scheme", "kv_cache_quant_algo", "producer"):
        config.has(decided)
    if algorithm in MODELOPT_SCHEMES:
        return CheckpointQuantization(algorithm, (Rule(frozenset("*"), MODELOPT_SCHEMES[algorithm]),), ignored)
    if algorithm != "MIXED_PRECISION" or not config.has("quantized_layers"):
        known = f"one of {', '.join(MODELOPT_SCHEMES)}, or MIXED_PRECISION with quantized_layers"
        config.fail("quant_algo", known, error=UnknownFormatError)
    by_algorithm: dict[str, set[str]] = {}
    layers: dict[str, Any] = config.child("quantized_layers").values
    for module, entry in layers.items():
        name = entry.get("quant_algo") if isinstance(entry, dict) else None
        if not isinstance(name, str) or name not in MODELOPT_SCHEMES:
            config.fail("quantized_layers", f"an object whose quant_algo is one of {', '.join(MODELOPT_SCHEMES)}")
        by_algorithm.setdefault(name, set()).add(module)
    rules = tuple(Rule(frozenset(modules), MODELOPT_SCHEMES[name]) for name, modules in by_algorithm.items())
    return CheckpointQuantization(" and ".join(by_algorithm), rules, ignored)


def _mxfp4(config: Config) -> CheckpointQuantization:
    """gpt-oss: experts alone, weights only (OpenAI's model card: the MoE weights, 4.25 bits each)."""
    ignored = _ignored(config, "modules_to_not_convert")
    return CheckpointQuantization(MXFP4_WEIGHT_ONLY.name, (Rule(frozenset("*"), MXFP4_WEIGHT_ONLY),), ignored)


def _int4(config: Config) -> CheckpointQuantization:
    """GPTQ and AWQ: integers in groups, float16 scales, packed zero points (AWQ's ``zero_point``, GPTQ's always)."""
    method = config.text("quant_method")
    bits = config.integer("bits")
    if bits not in (4, 8):
        config.fail("bits", "4 or 8", error=UnknownFormatError)
    raw = config.values.get("group_size")
    whole = raw in (-1, None)
    size = 0 if whole else config.integer("group_size")
    zero_points = config.boolean("zero_point", True) if method == "awq" else True
    stored = f"int{bits}"
    scheme = LinearScheme(
        f"{method.upper()} {stored}" + ("" if whole else f" in groups of {size}"),
        weight_dtype=stored,
        granularity="channel" if whole else "group",
        group_size=size,
        scale_dtype="float16",
        zero_point_dtype=stored if zero_points else None,
    )
    ignored = _ignored(config, "modules_to_not_convert")
    return CheckpointQuantization(f"{scheme.name}, weights only", (Rule(frozenset("*"), scheme),), ignored)


READERS = {
    "fp8": _fp8,
    "compressed-tensors": _compressed_tensors,
    "modelopt": _modelopt,
    "mxfp4": _mxfp4,
    "gptq": _int4,
    "awq": _int4,
}
"""Reader of each ``quant_method``."""
