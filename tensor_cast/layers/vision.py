"""Vision encoders: patches through bidirectional attention, then merged into tokens of the language model."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import Literal

from tensor_cast.layers.attention import QKNorm
from tensor_cast.layers.build import Build, shard
from tensor_cast.layers.feed_forward import MLPKind, gated_activation, plain_activation
from tensor_cast.layers.linear import linear, row_parallel_linear
from tensor_cast.layers.norm import RMS_NORM_FLOPS, NormKind, rms_norm
from tensor_cast.layers.schemes import UNQUANTIZED
from tensor_cast.layers.softmax_attention import ROPE_FLOPS
from tensor_cast.ops import Attention, Tensor
from tensor_cast.quantity import Quantity

Rows = Literal["patches", "tokens"]


def is_encoder(block: str) -> bool:
    """Whether the block of this name is a vision encoder's."""
    return block.startswith("vision.")


@dataclass(frozen=True)
class ImageGrid:
    """An image as the encoder sees it: ``tiles`` of ``rows`` x ``columns`` patches, each encoded on its own.

    A tile leaves ``tile_tokens`` to the language model.
    """

    rows: int
    columns: int
    tile_tokens: int
    tiles: int = 1

    @property
    def patches(self) -> int:
        """Patches of the image."""
        return self.tiles * self.tile_patches

    @property
    def tile_patches(self) -> int:
        """Patches of a tile, which see one another."""
        return self.rows * self.columns

    @property
    def tokens(self) -> int:
        """Tokens that the image leaves to the language model."""
        return self.tiles * self.tile_tokens

    def attention_pairs(self, window: int | None) -> int:
        """(query, key) pairs of a tile and head: all patches see all, or those of their ``window`` x ``window``."""
        if window is None:
            return self.tile_patches**2
        pairs = 0
        for row in range(ceil(self.rows / window)):
            height = min(window, self.rows - row * window)
            whole, rest = divmod(self.columns, window)
            pairs += whole * (height * window) ** 2 + (height * rest) ** 2
        return pairs


@dataclass(frozen=True)
class Projection:
    """One linear layer of a projector, with a norm before it or an activation after it.

    ``rows`` says what it runs on. ``norm_width`` normalises the input in rows of that width.
    """

    part: str
    k: int
    n: int
    bias: bool = True
    rows: Rows = "tokens"
    activation: bool = False
    norm: NormKind | None = None
    norm_width: int = 0


@dataclass(frozen=True)
class VisionEncoder:
    """``depth`` layers of ``heads`` heads over patches of ``patch_elements`` pixels' values.

    ``tables`` are learned arrays beside the layers: position embeddings, a class token. ``norms_per_layer`` is 4 where
    norms stand before and after each block. Layers not in ``full_layers`` attend in windows of ``window`` patches a
    side. Without ``rotary`` embedding positions are in the tables alone. ``projections`` take the encoder's output to
    the language model, each chain of ``deepstack`` what a layer before the last has to say. Linear layers stay
    unquantised, as published checkpoints and engines leave them.

    ``qk_norm`` normalises queries and keys, each head or ``full`` rows. ``layer_scale`` multiplies what each block adds
    by a learned vector. A ``class_token`` sees every patch of its tile; it is dropped after the last layer, where the
    patches are shuffled into the rows of the first projection. ``qkv_bias`` is ``bias`` where it is ``None``.
    """

    hidden: int
    depth: int
    heads: int
    head_dim: int
    intermediate: int
    patch_elements: int
    projections: tuple[Projection, ...]
    patch_bias: bool = False
    bias: bool = True
    mlp: MLPKind = "plain"
    norm: NormKind = "layer"
    norms_per_layer: int = 2
    qk_norm: QKNorm = "none"
    rotary: bool = True
    norms_around: tuple[str, ...] = ()
    tables: tuple[tuple[str, tuple[int, ...]], ...] = ()
    window: int | None = None
    full_layers: tuple[int, ...] | None = None
    qkv_bias: bool | None = None
    layer_scale: bool = False
    class_token: bool = False
    deepstack: tuple[tuple[Projection, ...], ...] = ()

    def positions(self, grid: ImageGrid) -> int:
        """What attention runs over in a tile: its patches, and a class token where there is one."""
        return grid.tile_patches + self.class_token

    def forward(self, build: Build, grid: ImageGrid) -> tuple[Tensor, ...]:
        """``build.queries`` tiles of ``grid`` -> (tiles x tokens, hidden of the language model), each deepstack's too.

        ``build.query_length`` is ``positions`` of the grid.
        """
        graph = build.graph
        with graph.block("vision.patches", place="first"), build.scope("vision.patches"):
            x = self._embed(build, build.queries * float(grid.tile_patches))
        full = range(self.depth) if self.full_layers is None or self.window is None else self.full_layers
        for name, window, count in (
            ("vision.windowed", self.window, self.depth - len(full)),
            ("vision.layers", None, len(full)),
        ):
            if count:
                with graph.block(name, count=count, place="first"), build.scope(name):
                    x = self._layer(build, x, grid, window)
        with graph.block("vision.projector", place="first"), build.scope("vision.projector"):
            tokens = build.queries * grid.tile_tokens
            return tuple(self._project(build, x, tokens, chain) for chain in (self.projections, *self.deepstack))

    def _embed(self, build: Build, patches: Quantity) -> Tensor:
        pixels = build.activation(patches, self.patch_elements)
        x = linear(
            build,
            pixels,
            k=self.patch_elements,
            n=self.hidden,
            part="vision.patches",
            scheme=UNQUANTIZED,
            bias=self.patch_bias,
        )
        rows = build.tokens
        if self.class_token:
            out = build.activation(rows, self.hidden)
            token = build.weight("vision.class_token", (self.hidden,))
            build.elementwise("concat", "vision.class_token", (x, token), (out,), flops_per_element=0.0)
            x = out
        for name, shape in self.tables:
            out = build.activation(rows, self.hidden)
            table = build.weight(f"vision.{name}", shape)
            build.elementwise("add", f"vision.{name}", (x, table), (out,), flops_per_element=1.0)
            x = out
        for name in self.norms_around:
            x = rms_norm(build, x, f"vision.{name}", width=self.hidden, kind=self.norm)
        return x

    def _layer(self, build: Build, x: Tensor, grid: ImageGrid, window: int | None) -> Tensor:
        heads = shard(self.heads, build.tp, "heads of the vision encoder", "--vision-tp-size")
        width = shard(self.intermediate, build.tp, "columns of the vision encoder's MLP", "--vision-tp-size")
        h = rms_norm(build, x, "vision.attention_norm", width=self.hidden, kind=self.norm)
        h = self._attend(build, h, heads, grid, window)
        x = self._add(build, x, h, "attention")
        h = rms_norm(build, x, "vision.mlp_norm", width=self.hidden, kind=self.norm)
        joint = 2 if self.mlp == "gated" else 1
        h = linear(build, h, k=self.hidden, n=joint * width, part="vision.mlp_up", scheme=UNQUANTIZED, bias=self.bias)
        if self.mlp == "gated":
            h = gated_activation(build, h, width, "vision.mlp_activation", UNQUANTIZED)
        else:
            h = plain_activation(build, h, "vision.mlp_activation")
        h = row_parallel_linear(
            build, h, k=width, n=self.hidden, part="vision.mlp_down", scheme=UNQUANTIZED, bias=self.bias
        )
        return self._add(build, x, h, "mlp")

    def _add(self, build: Build, x: Tensor, h: Tensor, part: str) -> Tensor:
        if self.norms_per_layer == 4:
            h = rms_norm(build, h, f"vision.post_{part}_norm", width=self.hidden, kind=self.norm)
        scale = (build.weight(f"vision.{part}_scale", (self.hidden,)),) if self.layer_scale else ()
        out = build.activation(*x.shape)
        name, flops = ("scale_add", 2.0) if scale else ("add", 1.0)
        build.elementwise(name, f"vision.{part}_add", (x, h, *scale), (out,), flops_per_element=flops)
        return out

    def _attend(self, build: Build, x: Tensor, heads: int, grid: ImageGrid, window: int | None) -> Tensor:
        rows, width = x.shape[0], heads * self.head_dim
        bias = self.bias if self.qkv_bias is None else self.qkv_bias
        qkv = linear(build, x, k=self.hidden, n=3 * width, part="vision.qkv", scheme=UNQUANTIZED, bias=bias)
        if self.rotary or self.qk_norm != "none":
            qkv = self._norm_rope(build, qkv, rows * (2.0 * width), self.head_dim if self.qk_norm == "head" else width)
        out = build.activation(rows, width)
        positions = self.positions(grid)
        pairs: Quantity = build.queries * float(positions**2 if window is None else grid.attention_pairs(window))
        build.emit(
            Attention(
                name="flash_attention",
                part="vision.attention",
                inputs=(qkv,),
                outputs=(out,),
                matrix_dtype=build.dtype,
                batch=build.queries,
                query_length=float(positions),
                kv_length=float(positions),
                heads=heads,
                kv_heads=heads,
                qk_dim=self.head_dim,
                v_dim=self.head_dim,
                pairs=pairs,
                cache_bytes=0.0,
                decode=False,
                causal=False,
            )
        )
        return row_parallel_linear(
            build, out, k=width, n=self.hidden, part="vision.attention_output", scheme=UNQUANTIZED, bias=self.bias
        )

    def _norm_rope(self, build: Build, qkv: Tensor, elements: Quantity, norm_width: int) -> Tensor:
        """Queries and keys, ``elements`` of them, normalised in rows of ``norm_width`` and rotated, beside values."""
        gammas: tuple[Tensor, ...] = ()
        if self.qk_norm != "none":
            gammas = tuple(build.weight(f"vision.{name}_norm.weight", (norm_width,)) for name in ("q", "k"))
        flops = (ROPE_FLOPS if self.rotary else 0.0) + (RMS_NORM_FLOPS if gammas else 0.0)
        name = "vision_rope" if self.rotary else "vision_qk_norm"
        out = build.activation(*qkv.shape)
        build.elementwise(name, "vision.rope", (qkv, *gammas), (out,), flops_per_element=flops, elements=elements)
        return out

    def _project(self, build: Build, x: Tensor, tokens: Quantity, chain: tuple[Projection, ...]) -> Tensor:
        if self.class_token:
            shuffled = build.activation(tokens, chain[0].k)
            patches = Tensor(shuffled.shape, x.dtype)
            build.elementwise("pixel_shuffle", "vision.pixel_shuffle", (patches,), (shuffled,), flops_per_element=0.0)
            x = shuffled
        for layer in chain:
            rows = x.shape[0] if layer.rows == "patches" else tokens
            if layer.norm is not None:
                x = rms_norm(build, x, f"vision.{layer.part}_norm", width=layer.norm_width, kind=layer.norm)
            x = linear(
                build,
                x.view(rows, layer.k),
                k=layer.k,
                n=layer.n,
                part=f"vision.{layer.part}",
                scheme=UNQUANTIZED,
                bias=layer.bias,
            )
            if layer.activation:
                x = plain_activation(build, x, f"vision.{layer.part}_activation")
        return x
