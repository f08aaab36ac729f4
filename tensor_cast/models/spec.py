"""A language model as structure: what its ``config.json`` says, in the project's own terms."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property

from tensor_cast.errors import ModelingError
from tensor_cast.layers.decoder_layer import DecoderLayer
from tensor_cast.layers.embedding import Vocabulary
from tensor_cast.layers.hyper_connection import HyperConnection
from tensor_cast.layers.norm import NormKind
from tensor_cast.layers.vision import VisionEncoder
from tensor_cast.models.checkpoint import CheckpointQuantization
from tensor_cast.models.image_rules import ImageRule


@dataclass(frozen=True)
class ModelSpec:
    """A decoder-only language model, with a vision encoder or without.

    ``layers`` has one entry a decoder layer; equal entries are built once. ``mtp_layer`` is the decoder layer of a
    multi-token-prediction module and ``mtp_modules`` how many the model ships. ``hyper`` are residual streams.
    ``vision_in_total`` says whether the published parameter count, that of the reference class, includes the encoder.
    ``checkpoint`` is the checkpoint's own quantisation and ``quantization`` the same in words; ``checkpoint_problem``
    says what is unknown about it, and then there is neither. ``draft`` is a smaller model that drafts tokens for this
    one. ``dtype_note`` says that ``dtype`` is assumed, where it is. ``read_keys`` are the config keys that it follows
    from and ``ignored_keys`` those that the family does not know and that could change the cost.
    """

    name: str
    model_type: str
    family: str
    hidden: int
    vocabulary: Vocabulary
    layers: tuple[DecoderLayer, ...]
    dtype: str = "bfloat16"
    dtype_note: str | None = None
    max_position_embeddings: int | None = None
    mtp_layer: DecoderLayer | None = None
    mtp_modules: int = 0
    quantization: str | None = None
    origin: str = ""
    ignored_keys: tuple[str, ...] = ()
    read_keys: tuple[str, ...] = ()
    notes: tuple[str, ...] = field(default=())
    norm: NormKind = "rms"
    hyper: HyperConnection | None = None
    vision: VisionEncoder | None = None
    image_rule: ImageRule | None = None
    vision_in_total: bool = False
    checkpoint: CheckpointQuantization | None = None
    checkpoint_problem: str | None = None
    draft: ModelSpec | None = None

    @property
    def expert_layers(self) -> int:
        """How many decoder layers are mixtures of experts."""
        return sum(layer.has_experts for layer in self.layers)

    @property
    def has_experts(self) -> bool:
        """Whether any layer is a mixture of experts."""
        return any(layer.has_experts for layer in self.layer_kinds)

    @cached_property
    def layer_kinds(self) -> dict[DecoderLayer, tuple[int, ...]]:
        """Distinct layers with the indices at which they stand, in order of first appearance."""
        kinds: dict[DecoderLayer, list[int]] = {}
        seen: dict[int, list[int]] = {}
        for index, layer in enumerate(self.layers):
            # Families reuse one object for equal layers: looking objects up first saves hashing deep structures.
            indices = seen.get(id(layer))
            if indices is None:
                indices = seen[id(layer)] = kinds.setdefault(layer, [])
            indices.append(index)
        return {layer: tuple(indices) for layer, indices in kinds.items()}

    def with_layers(self, count: int) -> ModelSpec:
        """The same model cut to its first ``count`` layers.

        Raises:
            ModelingError: the model has fewer.
        """
        if not 1 <= count <= len(self.layers):
            raise ModelingError(
                f"--num-hidden-layers-override {count} is not between 1 and {len(self.layers)}, "
                f"the layers of {self.name}."
            )
        return replace(self, layers=self.layers[:count])

    def as_checkpoint(self) -> ModelSpec:
        """The same model with each layer, drafting ones too, quantised as its checkpoint is.

        Raises:
            ModelingError: the config has no ``quantization_config``, or one of a format that is not known.
        """
        if self.checkpoint_problem is not None:
            raise ModelingError(self.checkpoint_problem)
        if self.checkpoint is None:
            raise ModelingError(
                "--quantize-linear-action CHECKPOINT needs a quantization_config, which the config of "
                f"{self.name} has not: name a scheme, or DISABLED."
            )
        drafting = self.mtp_layer
        if drafting is not None:
            drafting = replace(drafting, schemes=self.checkpoint.drafting(len(self.layers)))
        return replace(self, layers=self.checkpoint.quantized(self.layers), mtp_layer=drafting)
