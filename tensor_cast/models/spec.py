"""A language model as structure: what its ``config.json`` says, in the project's own terms."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from tensor_cast.errors import ModelingError
from tensor_cast.layers.decoder_layer import DecoderLayer
from tensor_cast.layers.embedding import Vocabulary


@dataclass(frozen=True)
class ModelSpec:
    """A decoder-only language model.

    ``layers`` has one entry a decoder layer; equal entries are built once. ``mtp_layer`` is the decoder layer of a
    multi-token-prediction module and ``mtp_modules`` how many the model ships. ``ignored_keys`` are config keys that
    the family does not know and that could change the cost.
    """

    name: str
    model_type: str
    family: str
    hidden: int
    vocabulary: Vocabulary
    layers: tuple[DecoderLayer, ...]
    dtype: str = "bfloat16"
    max_position_embeddings: int | None = None
    mtp_layer: DecoderLayer | None = None
    mtp_modules: int = 0
    quantization: str | None = None
    origin: str = ""
    ignored_keys: tuple[str, ...] = ()
    notes: tuple[str, ...] = field(default=())

    @property
    def has_experts(self) -> bool:
        """Whether any layer is a mixture of experts."""
        return any(layer.has_experts for layer in self.layers)

    def layer_kinds(self) -> dict[DecoderLayer, tuple[int, ...]]:
        """Distinct layers with the indices at which they stand, in order of first appearance."""
        kinds: dict[DecoderLayer, list[int]] = {}
        for index, layer in enumerate(self.layers):
            kinds.setdefault(layer, []).append(index)
        return {layer: tuple(indices) for layer, indices in kinds.items()}

    def with_layers(self, count: int) -> ModelSpec:
        """The same model cut to its first ``count`` layers.

        Raises:
            ModelingError: the model has fewer.
        """
        if not 1 <= count <= len(self.layers):
            raise ModelingError(
                f"--num-hidden-layers-override {count} is not between 1 and {len(self.layers)}, the layers of {self.name}."
            )
        return replace(self, layers=self.layers[:count])
