"""Text encoders of diffusion pipelines: T5 and UMT5, CLIP, and language models used as encoders."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from tensor_cast.graph import Graph
from tensor_cast.layers.conv import ComponentBuild
from tensor_cast.layers.dit import UNQUANTIZED, add, layer_norm
from tensor_cast.layers.linear import linear
from tensor_cast.layers.text_encoder import ClipLayer, EncoderAttention, T5Layer, embed, rms_norm
from tensor_cast.models.config import Config
from tensor_cast.quantity import Quantity

if TYPE_CHECKING:
    from tensor_cast.models.spec import ModelSpec


class TextEncoder(Protocol):
    """A text encoder as structure."""

    @property
    def parameters(self) -> int:
        """All parameters."""

    def graph(self, prompts: Quantity, tokens: Quantity, *, dtype: str, fused: bool) -> Graph:
        """The kernels of encoding ``prompts`` of ``tokens`` each on one device."""


def graph_parameters(graph: Graph) -> int:
    """Parameters of all weights of a graph."""
    return sum(int(weight.elements) * block.weight_copies for block in graph.blocks for weight in block.weights())


@dataclass(frozen=True)
class T5Encoder:
    """T5 (one table of relative positions) and UMT5 (one a layer)."""

    layer: T5Layer
    layers: int
    vocabulary: int
    own_positions: bool

    @property
    def parameters(self) -> int:
        return graph_parameters(self.graph(1.0, 1.0, dtype="bfloat16", fused=False))

    def graph(self, prompts: Quantity, tokens: Quantity, *, dtype: str, fused: bool) -> Graph:
        graph, layer = Graph(), self.layer
        b = ComponentBuild(graph=graph, dtype=dtype, batch=prompts, fused=fused)
        hidden = layer.attention.hidden
        with graph.block("embedding"), b.scope("embedding"):
            x = embed(b, prompts * tokens, self.vocabulary, hidden)
            if not self.own_positions:
                scores = layer.bias_table(b, tokens)
        with graph.block("layers", count=self.layers, layers=tuple(range(self.layers))), b.scope("layers"):
            if self.own_positions:
                scores = layer.bias_table(b, tokens)
            x = layer.forward(b, x, tokens, scores)
        with graph.block("head"), b.scope("head"):
            rms_norm(b, x, "final_norm")
        return graph


@dataclass(frozen=True)
class ClipTextEncoder:
    """CLIP's text tower; it always takes ``positions`` tokens, padded. ``projection`` is of the pooled token."""

    layer: ClipLayer
    layers: int
    vocabulary: int
    positions: int
    projection: int | None

    @property
    def parameters(self) -> int:
        return graph_parameters(self.graph(1.0, 1.0, dtype="bfloat16", fused=False))

    def graph(self, prompts: Quantity, tokens: Quantity, *, dtype: str, fused: bool) -> Graph:
        graph, hidden = Graph(), self.layer.attention.hidden
        b = ComponentBuild(graph=graph, dtype=dtype, batch=prompts, fused=fused)
        rows = prompts * self.positions
        with graph.block("embedding"), b.scope("embedding"):
            words = embed(b, rows, self.vocabulary, hidden)
            x = add(b, words, embed(b, rows, self.positions, hidden, "positions"), "embedding")
        with graph.block("layers", count=self.layers, layers=tuple(range(self.layers))), b.scope("layers"):
            x = self.layer.forward(b, x, float(self.positions))
        with graph.block("head"), b.scope("head"):
            x = layer_norm(b, x, "final_norm", affine=True)
            if self.projection is not None:
                pooled = x.view(prompts, hidden)
                linear(b, pooled, k=hidden, n=self.projection, part="projection", scheme=UNQUANTIZED)
        return graph


@dataclass(frozen=True)
class LanguageModelEncoder:
    """A language model whose hidden states condition the denoiser; ``head`` says whether it has its output layer."""

    spec: ModelSpec
    head: bool

    @property
    def parameters(self) -> int:
        from tensor_cast.models.parameters import count_parameters

        counts = count_parameters(self.spec)
        return counts.total - (0 if self.head else sum(part.total for part in counts.parts if part.part == "lm_head"))

    def graph(self, prompts: Quantity, tokens: Quantity, *, dtype: str, fused: bool) -> Graph:
        # Language models are heavy to import, and few pipelines have one.
        from tensor_cast.deployment import Deployment
        from tensor_cast.models.decoder import build
        from tensor_cast.workload import TextWorkload

        workload = TextWorkload(num_queries=prompts, query_length=tokens)
        graph = build(self.spec, workload, Deployment(dtype=dtype, compile=fused)).graph
        if not self.head:
            graph.blocks = [block for block in graph.blocks if block.name != "head"]
        return graph


def t5(config: Config) -> T5Encoder:
    """A T5EncoderModel or UMT5EncoderModel of its config."""
    hidden, projection = config.integer("d_model"), config.text("feed_forward_proj", "relu")
    attention = EncoderAttention(hidden, config.integer("num_heads"), config.integer("d_kv"), bias=False, causal=False)
    layer = T5Layer(
        attention=attention,
        inner=config.integer("d_ff"),
        gated=config.boolean("is_gated_act", projection.startswith("gated")),
        buckets=config.integer("relative_attention_num_buckets", 32),
    )
    return T5Encoder(
        layer=layer,
        layers=config.integer("num_layers"),
        vocabulary=config.integer("vocab_size"),
        own_positions=config.text("model_type") == "umt5",
    )


def clip(config: Config) -> ClipTextEncoder:
    """A CLIPTextModel, with projection or without, of its config."""
    hidden, heads = config.integer("hidden_size"), config.integer("num_attention_heads")
    if hidden % heads:
        config.fail("num_attention_heads", f"a divisor of hidden_size {hidden}")
    attention = EncoderAttention(hidden, heads, hidden // heads, bias=True, causal=True)
    projected = "WithProjection" in _architecture(config)
    projection = config.integer("projection_dim", 512)
    return ClipTextEncoder(
        layer=ClipLayer(attention, config.integer("intermediate_size")),
        layers=config.integer("num_hidden_layers"),
        vocabulary=config.integer("vocab_size"),
        positions=config.integer("max_position_embeddings", 77),
        projection=projection if projected else None,
    )


def language_model(config: Config) -> LanguageModelEncoder:
    """A language model of its config; the bare ``...Model`` of an architecture has no output layer."""
    from tensor_cast.models.families import read_spec

    spec = read_spec(dict(config.values), name=config.where, where=config.where)
    return LanguageModelEncoder(spec, head=not _architecture(config).endswith("Model"))


def _architecture(config: Config) -> str:
    names = config.items("architectures") or [""]
    return str(names[0])


def text_encoder(config: Config) -> TextEncoder:
    """The encoder that ``model_type`` names.

    Raises:
        ModelingError: it is of no known family, or its config is wrong.
    """
    model_type = config.text("model_type")
    if model_type in ("t5", "umt5"):
        return t5(config)
    if model_type == "clip_text_model":
        return clip(config)
    return language_model(config)
