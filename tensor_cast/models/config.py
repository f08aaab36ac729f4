"""Typed reading of a ``config.json``: every key that a family reads is checked, every key that it does not is known."""

from __future__ import annotations

from typing import Any, NoReturn

from tensor_cast.errors import ModelingError

_REQUIRED = object()

_LARGEST_NUMBER = 1e15
"""What sizes are multiplied by stays far from the largest float."""

MAX_LAYERS = 10_000
"""Far more than any model has; a structure of a billion layers would fill the memory before it is refused."""
_LAYER_COUNTS = frozenset(
    [
        "depth",
        "layers_per_block",
        "mtp_num_hidden_layers",
        "num_hidden_layers",
        "num_layers",
        "num_nextn_predict_layers",
        "num_refiner_layers",
        "num_res_blocks",
        "num_single_layers",
        "vt_num_hidden_layers",
    ]
)

HARMLESS_KEYS = frozenset(
    [
        "_attn_implementation",
        "_attn_implementation_autoset",
        "_name_or_path",
        "add_cross_attention",
        "architectures",
        "attention_dropout",
        "attn_implementation",
        "auto_map",
        "bad_words_ids",
        "begin_suppress_tokens",
        "bos_token_id",
        "cache_implementation",
        "chunk_size_feed_forward",
        "classifier_dropout",
        "cross_attention_hidden_size",
        "decoder_start_token_id",
        "diversity_penalty",
        "do_sample",
        "dtype",
        "early_stopping",
        "embd_pdrop",
        "encoder_no_repeat_ngram_size",
        "eos_token_id",
        "exponential_decay_length_penalty",
        "finetuning_task",
        "forced_bos_token_id",
        "forced_eos_token_id",
        "hidden_dropout",
        "id2label",
        "image_token_id",
        "image_token_index",
        "initializer_range",
        "is_decoder",
        "is_encoder_decoder",
        "keep_last_n",
        "label2id",
        "length_penalty",
        "max_length",
        "max_position_embeddings",
        "min_length",
        "model_type",
        "no_repeat_ngram_size",
        "norm_eps",
        "norm_topk_prob",
        "num_beam_groups",
        "num_beams",
        "num_return_sequences",
        "original_max_position_embeddings",
        "output_attentions",
        "output_hidden_states",
        "output_router_logits",
        "output_scores",
        "pad_token_id",
        "prefix",
        "pretraining_tp",
        "problem_type",
        "pruned_heads",
        "quantization_config",
        "remove_invalid_values",
        "repetition_penalty",
        "resid_pdrop",
        "return_dict",
        "return_dict_in_generate",
        "rms_norm_eps",
        "rope_interleave",
        "rope_parameters",
        "rope_scaling",
        "rope_theta",
        "rope_local_base_freq",
        "router_aux_loss_coef",
        "router_jitter_noise",
        "routed_scaling_factor",
        "sep_token_id",
        "seq_aux",
        "suppress_tokens",
        "task_specific_params",
        "temperature",
        "tf_legacy_loss",
        "tie_encoder_decoder",
        "tokenizer_class",
        "top_k",
        "top_p",
        "torch_dtype",
        "torchscript",
        "transformers_version",
        "typical_p",
        "use_bfloat16",
        "use_cache",
        "video_token_id",
        "vision_end_token_id",
        "vision_start_token_id",
        "scoring_func",
        "topk_method",
        "n_group",
        "topk_group",
        "aux_loss_alpha",
        "ep_size",
        "layer_norm_eps",
        "initial_context_length",
        "swiglu_limit",
        "query_pre_attn_scalar",
        "hidden_activation",
        "hidden_act",
        "attn_logit_softcapping",
        "unk_token_id",
        "experts_per_token",
        "max_window_layers",
        "sliding_window_size",
        "for_llm_class",
        "for_llm_compressor",
        "initializer_factor",
        "video_token_index",
        "audio_token_id",
        "boa_token_id",
        "boi_token_id",
        "eoa_token_id",
        "eoa_token_index",
        "eoi_token_id",
        "eoi_token_index",
        "boi_token_index",
        "media_placeholder_token_id",
        "image_placeholder",
        "rope_scaling_factor",
        "layernorm_epsilon",
        "layer_norm_epsilon",
        "moe_norm_min",
        "input_jitter_noise",
        "attention_multiplier",
    ]
)
"""Keys that change neither structure nor cost: tokens, training, generation, rotary frequencies."""


class Config:
    """A ``config.json`` object, read key by key with the path of each named in errors (``$.text_config.head_dim``).

    JSON ``null`` counts as absent, as the reference implementations take it.
    """

    def __init__(self, values: dict[str, Any], *, where: str, path: str = "$", parent: Config | None = None) -> None:
        self.values = values
        self.parent = parent
        self.where = where
        self.path = path
        self.read: set[str] = set()
        self._settled: set[str] = set()

    def fail(self, key: str, expected: str, *, error: type[ModelingError] = ModelingError) -> NoReturn:
        """Raise ``error`` for the value of ``key``."""
        raise error(f"{self.where}: {self.path}.{key} is {self.values.get(key)!r:.60}, expected {expected}.")

    def error(self, message: str) -> ModelingError:
        """An error of the whole object: values that contradict each other."""
        return ModelingError(f"{self.where}: {self.path}: {message}")

    def has(self, key: str) -> bool:
        """Whether ``key`` is present and not null; marks it as read."""
        self.read.add(key)
        return self.values.get(key) is not None

    def integer(self, key: str, default: Any = _REQUIRED, *, minimum: int = 1) -> int:
        """A whole number of at least ``minimum``; ``default`` where absent.

        Raises:
            ModelingError: absent without a default, not a whole number, or too small.
        """
        expected = f"a whole number of at least {minimum}"
        value = self._value(key, default, expected)
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int) or value < minimum:
            self.fail(key, expected)
        most = MAX_LAYERS if key in _LAYER_COUNTS else 2**53
        if value > most:
            self.fail(key, f"{expected} and at most {most:,}")
        return value

    def optional_integer(self, key: str, *, minimum: int = 1) -> int | None:
        """A whole number, or ``None`` where absent."""
        return self.integer(key, minimum=minimum) if self.has(key) else None

    def number(self, key: str, default: Any = _REQUIRED) -> float:
        """A number of no absurd size."""
        value = self._value(key, default, "a number")
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not abs(value) < _LARGEST_NUMBER:
            self.fail(key, f"a number within {_LARGEST_NUMBER:g} of zero")
        return float(value)

    def ratio(self, key: str, default: Any = _REQUIRED) -> float:
        """A number above 0 and at most 1."""
        value = self.number(key, default)
        if not 0.0 < value <= 1.0:
            self.fail(key, "a number above 0 and at most 1")
        return value

    def boolean(self, key: str, default: Any = _REQUIRED) -> bool:
        """``true`` or ``false``."""
        value = self._value(key, default, "true or false")
        if not isinstance(value, bool):
            self.fail(key, "true or false")
        return value

    def text(self, key: str, default: Any = _REQUIRED) -> str:
        """A string."""
        value = self._value(key, default, "a string")
        if not isinstance(value, str):
            self.fail(key, "a string")
        return value

    def items(self, key: str, length: int | None = None) -> list[Any] | None:
        """A list, of ``length`` entries where given; ``None`` where absent."""
        if not self.has(key):
            return None
        value = self.values[key]
        if not isinstance(value, list) or (length is not None and len(value) != length):
            self.fail(key, "a list" if length is None else f"a list of {length} entries")
        return value

    def integers(self, key: str, default: list[int], *, length: int | None = None) -> tuple[int, ...]:
        """A list of whole numbers above 0, of ``length`` entries where given; ``default`` where absent."""
        values = self.items(key)
        entries = f"{length} " if length is not None else ""
        wrong = values is not None and (
            not values
            or len(values) != (length or len(values))
            or any(type(value) is not int or not 1 <= value <= 2**53 for value in values)
        )
        if wrong:
            self.fail(key, f"a list of {entries}whole numbers of at least 1")
        return tuple(values or default)

    def indices(self, key: str, count: int) -> list[int] | None:
        """A list of whole numbers below ``count``, each the index of a layer; ``None`` where absent."""
        values = self.items(key)
        if values is not None and any(type(value) is not int or not 0 <= value < count for value in values):
            self.fail(key, f"a list of layers from 0 to {count - 1}")
        return values

    def child(self, key: str) -> Config:
        """The object under ``key``."""
        value = self._value(key, _REQUIRED, "an object")
        if not isinstance(value, dict):
            self.fail(key, "an object")
        return Config(value, where=self.where, path=f"{self.path}.{key}", parent=self)

    def ignored(self) -> tuple[str, ...]:
        """Keys that say something, that nothing has read and that are not known to be harmless, sorted."""
        return tuple(
            sorted(
                key
                for key, value in self.values.items()
                if value is not None and key not in self.read and key not in HARMLESS_KEYS
            )
        )

    def off(self, *keys: str) -> None:
        """Check that switches which the family does not model are false or absent.

        Raises:
            ModelingError: one of them is on.
        """
        for key in keys:
            if self.has(key) and self.values[key] is not False:
                self.fail(key, "false: the family has no published model with it")

    def settled(self, *keys: str) -> None:
        """Mark keys as known and of no weight for this family."""
        self.read.update(keys)
        self._settled.update(keys)

    def used(self) -> tuple[str, ...]:
        """Keys with a value that something has read for its weight, sorted."""
        return tuple(sorted(key for key in self.read - self._settled if self.values.get(key) is not None))

    def _value(self, key: str, default: Any, expected: str) -> Any:
        if self.has(key):
            return self.values[key]
        if default is _REQUIRED:
            raise ModelingError(f"{self.where}: {self.path}.{key} is missing, expected {expected}.")
        return default
