"""Attention with a state of fixed size instead of a cache that grows: gated delta rule, KDA and Mamba2."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tensor_cast.dtypes import dtype_bytes
from tensor_cast.layers.build import Build, shard, shard_or_replicate
from tensor_cast.layers.cache import LayerCache
from tensor_cast.layers.linear import linear, row_parallel_linear
from tensor_cast.layers.norm import RMS_NORM_FLOPS
from tensor_cast.ops import StateAttention, Tensor
from tensor_cast.quantity import Quantity, ceil_div
from tensor_cast.quantization import LinearScheme

# SiLU (exponential, add, divide, multiply); softplus and exponential of a decay.
SILU_FLOPS = 4.0
DECAY_FLOPS = 8.0
# Tokens of a chunk of the delta rule in flash-linear-attention, which engines use.
DELTA_CHUNK = 64


def causal_convolution(build: Build, x: Tensor, kernel: int, *, bias: bool, part: str, state_dtype: str) -> Tensor:
    """Depthwise convolution over the last ``kernel`` tokens and SiLU, with the state of ``kernel - 1`` tokens."""
    rows, channels = x.shape
    weights = [build.weight(part, (channels, kernel))]
    if bias:
        weights.append(build.weight(f"{part}.bias", (channels,)))
    state = Tensor((build.queries, kernel - 1, channels), state_dtype, "cache")
    out = build.activation(rows, channels)
    build.elementwise(
        "causal_conv1d", part, (x, state, *weights), (out, state), flops_per_element=2.0 * kernel + SILU_FLOPS
    )
    return out


def delta_rule_flops_per_token(key_dim: int, value_dim: int, chunk: int = DELTA_CHUNK) -> float:
    """Matrix FLOPs a token and head of the gated delta rule in chunks of C tokens.

    Gated DeltaNet (arXiv 2412.06464, section 3.3), by chunk and head: K K', W = T K and Q K' are 2 C^2 d_k each,
    U = T V and the masked product with it 2 C^2 d_v each, the inverse T about C^3 / 3; W S, Q S and the update of the
    state S are 2 C d_k d_v each. Over C tokens: ``2 C (3 d_k + 2 d_v) + 6 d_k d_v + C^2 / 3``.
    """
    return 2.0 * chunk * (3 * key_dim + 2 * value_dim) + 6.0 * key_dim * value_dim + chunk**2 / 3.0


def delta_rule_step_flops(key_dim: int, value_dim: int) -> float:
    """FLOPs a token and head of the recurrent form: decay S (1), S'k (2), add k (x) delta (2), S'q (2) an element."""
    return 7.0 * key_dim * value_dim


def scan_flops_per_token(head_dim: int, state: int, heads_per_group: int, chunk: int) -> float:
    """Matrix FLOPs a token and head of Mamba2's chunked scan.

    Structured state-space duality (arXiv 2405.21060, section 6): C B' once a group (2 L N), its product with X
    (2 L P), the chunk's state B'X and its output C S (2 N P each).
    """
    return 2.0 * chunk * (state / heads_per_group + head_dim) + 4.0 * state * head_dim


def scan_step_flops(head_dim: int, state: int) -> float:
    """FLOPs a token and head of the recurrent form: decay (1), add B (x) x (2), S C (2) an element."""
    return 5.0 * head_dim * state


def state_pass(
    build: Build,
    inputs: tuple[Tensor, ...],
    *,
    name: str,
    heads: int,
    key_dim: int,
    value_dim: int,
    chunk: int,
    chunked_flops: float,
    step_flops: float,
    state_dtype: str,
) -> Tensor:
    """The recurrence over this step's tokens: (tokens, heads x value_dim) out.

    A decode reads each sequence's state, writes it after every token (a drafted one may turn out to be the last that
    holds: github.com/vllm-project/vllm/pull/49887) and does ``step_flops`` a token and head on the vector
    units (there is no matrix to fill). A prefill works in chunks on the matrix units and writes and reads back the
    state that enters each chunk, in the model's dtype, as the two-kernel form of flash-linear-attention does.
    """
    rows = inputs[0].shape[0]
    out = build.activation(rows, heads * value_dim)
    state = Tensor((build.queries, heads, key_dim, value_dim), state_dtype, "cache")
    outputs: tuple[Tensor, ...] = (out, state)
    state_bytes: Quantity = state.bytes
    if build.decode:
        outputs = (out, Tensor((rows, heads, key_dim, value_dim), state_dtype, "cache"))
    else:
        chunks = build.queries * ceil_div(build.query_length, chunk)
        between = Tensor((chunks, heads, key_dim, value_dim), build.dtype)
        outputs = (*outputs, between)
        state_bytes = state_bytes + between.bytes
    build.emit(
        StateAttention(
            name=f"recurrent_{name}" if build.decode else f"chunk_{name}",
            part="attention.core",
            inputs=(*inputs, state),
            outputs=outputs,
            matrix_dtype=build.dtype,
            batch=build.queries,
            query_length=build.query_length,
            kv_length=build.query_length,
            heads=heads,
            kv_heads=heads,
            qk_dim=key_dim,
            v_dim=value_dim,
            pairs=0.0,
            cache_bytes=state_bytes,
            decode=build.decode,
            matrix_work=0.0 if build.decode else rows * heads * chunked_flops,
            vector_work=rows * heads * (step_flops if build.decode else 4.0 * (key_dim + value_dim)),
        )
    )
    return out


def gated_norm(build: Build, x: Tensor, gate: Tensor, width: int) -> Tensor:
    """RMSNorm in groups of ``width`` times SiLU (or sigmoid) of the gate: one kernel."""
    out = build.activation(*x.shape)
    gamma = build.weight("attention.norm.weight", (width,))
    build.elementwise(
        "rms_norm_gated",
        "attention.norm",
        (x, gate, gamma),
        (out,),
        flops_per_element=RMS_NORM_FLOPS + SILU_FLOPS + 1.0,
    )
    return out


@dataclass(frozen=True)
class GatedDeltaNet:
    """Gated delta rule (Qwen3-Next, Qwen3.5) or, with ``decay`` a channel, Kimi Delta Attention (arXiv 2510.26692).

    ``key_heads`` query and key heads of ``key_dim`` serve ``value_heads`` value heads of ``value_dim``, each with a
    state of key_dim x value_dim. A convolution of ``kernel`` taps runs over queries, keys and values. KDA projects its
    decay and, unless ``full_rank_gate``, its output gate through ``key_dim`` channels.
    """

    hidden: int
    key_heads: int
    value_heads: int
    key_dim: int
    value_dim: int
    kernel: int
    state_dtype: str = "float32"
    conv_dtype: str = "float32"
    decay: Literal["head", "channel"] = "head"
    full_rank_gate: bool = True

    def _local(self, tp: int) -> tuple[int, int]:
        heads = shard(self.value_heads, tp, "value heads of linear attention", "--tp-size")
        return shard(self.key_heads, tp, "key heads of linear attention", "--tp-size"), heads

    def cache(self, tp: int, dcp: int = 1) -> LayerCache:
        """Recurrent state and the convolution's last taps; nothing grows with the context."""
        key_heads, heads = self._local(tp)
        recurrent = heads * self.key_dim * self.value_dim * dtype_bytes(self.state_dtype)
        channels = 2 * key_heads * self.key_dim + heads * self.value_dim
        return LayerCache(
            "state",
            state_bytes=recurrent + channels * (self.kernel - 1) * dtype_bytes(self.conv_dtype),
            formula=f"{heads} heads x {self.key_dim} x {self.value_dim} in {self.state_dtype}, and "
            f"{channels} channels x {self.kernel - 1} taps in {self.conv_dtype}",
        )

    def flops_per_context_token(self) -> float:
        """None: a token's cost does not depend on its context."""
        return 0.0

    def flops_beyond_window(self) -> float:
        """None."""
        return 0.0

    def forward(self, build: Build, x: Tensor, scheme: LinearScheme) -> Tensor:
        """(tokens, hidden) -> residual rows of hidden, reduced over the TP group."""
        key_heads, heads = self._local(build.tp)
        rows, values = x.shape[0], heads * self.value_dim
        channels = 2 * key_heads * self.key_dim + values
        joint_gate = self.full_rank_gate
        joint = linear(
            build,
            x,
            k=self.hidden,
            n=channels + (values if joint_gate else 0),
            part="attention.qkvz" if joint_gate else "attention.qkv",
            scheme=scheme,
        )
        gate = joint.view(rows, values) if joint_gate else self._low_rank(build, x, values, "attention.gate")
        controls = self._controls(build, x, heads)
        qkv = causal_convolution(
            build,
            joint.view(rows, channels),
            self.kernel,
            bias=False,
            part="attention.convolution",
            state_dtype=self.conv_dtype,
        )
        out = state_pass(
            build,
            (qkv, *controls),
            name="gated_delta_rule" if self.decay == "head" else "kimi_delta_rule",
            heads=heads,
            key_dim=self.key_dim,
            value_dim=self.value_dim,
            chunk=DELTA_CHUNK,
            chunked_flops=delta_rule_flops_per_token(self.key_dim, self.value_dim),
            step_flops=delta_rule_step_flops(self.key_dim, self.value_dim),
            state_dtype=self.state_dtype,
        )
        out = gated_norm(build, out, gate, self.value_dim)
        output = build.schemes.of_output(scheme)
        return row_parallel_linear(build, out, k=values, n=self.hidden, part="attention.output", scheme=output)

    def _controls(self, build: Build, x: Tensor, heads: int) -> tuple[Tensor, ...]:
        """Decay and writing strength of each token: a head's, or for KDA a channel's decay."""
        rows, free = x.shape[0], build.schemes.unquantized
        a_log = build.weight("attention.decay.a_log", (heads,))
        if self.decay == "head":
            joint = linear(build, x, k=self.hidden, n=2 * heads, part="attention.ba", scheme=free)
            bias = build.weight("attention.decay.bias", (heads,))
            decay = build.activation(rows, 2 * heads, dtype="float32")
            build.elementwise(
                "delta_gate", "attention.decay", (joint, a_log, bias), (decay,), flops_per_element=DECAY_FLOPS
            )
            return (decay,)
        strength = linear(build, x, k=self.hidden, n=heads, part="attention.b", scheme=free)
        channels = heads * self.key_dim
        raw = self._low_rank(build, x, channels, "attention.decay")
        bias = build.weight("attention.decay.bias", (channels,))
        decay = build.activation(rows, channels, dtype="float32")
        build.elementwise("delta_gate", "attention.decay", (raw, a_log, bias), (decay,), flops_per_element=DECAY_FLOPS)
        return (decay, strength)

    def _low_rank(self, build: Build, x: Tensor, width: int, part: str) -> Tensor:
        """hidden -> key_dim -> width."""
        free = build.schemes.unquantized
        down = linear(build, x, k=self.hidden, n=self.key_dim, part=f"{part}_a", scheme=free)
        return linear(build, down, k=self.key_dim, n=width, part=f"{part}_b", scheme=free)


@dataclass(frozen=True)
class Mamba2:
    """Mamba2 mixer (arXiv 2405.21060): ``heads`` of ``head_dim`` with a state of ``state`` each, B and C shared by the
    heads of a group; a convolution over x, B and C, and a gated norm in groups.
    """

    hidden: int
    heads: int
    head_dim: int
    groups: int
    state: int
    kernel: int
    chunk: int = 128
    conv_bias: bool = True
    bias: bool = False
    state_dtype: str = "float32"
    conv_dtype: str = "bfloat16"

    def _local(self, tp: int) -> tuple[int, int]:
        heads = shard(self.heads, tp, "Mamba heads", "--tp-size")
        return heads, shard_or_replicate(self.groups, tp, "Mamba groups", "--tp-size")

    def cache(self, tp: int, dcp: int = 1) -> LayerCache:
        """State-space state and the convolution's last taps; nothing grows with the context."""
        heads, groups = self._local(tp)
        ssm = heads * self.head_dim * self.state * dtype_bytes(self.state_dtype)
        channels = heads * self.head_dim + 2 * groups * self.state
        return LayerCache(
            "state",
            state_bytes=ssm + channels * (self.kernel - 1) * dtype_bytes(self.conv_dtype),
            formula=f"{heads} heads x {self.head_dim} x {self.state} in {self.state_dtype}, and {channels} channels x "
            f"{self.kernel - 1} taps in {self.conv_dtype}",
        )

    def flops_per_context_token(self) -> float:
        """None: a token's cost does not depend on its context."""
        return 0.0

    def flops_beyond_window(self) -> float:
        """None."""
        return 0.0

    def forward(self, build: Build, x: Tensor, scheme: LinearScheme) -> Tensor:
        """(tokens, hidden) -> residual rows of hidden, reduced over the TP group."""
        heads, groups = self._local(build.tp)
        rows, width = x.shape[0], heads * self.head_dim
        channels = width + 2 * groups * self.state
        joint = linear(
            build,
            x,
            k=self.hidden,
            n=width + channels + heads,
            part="attention.in_projection",
            scheme=scheme,
            bias=self.bias,
        )
        mixed = causal_convolution(
            build,
            joint.view(rows, channels),
            self.kernel,
            bias=self.conv_bias,
            part="attention.convolution",
            state_dtype=self.conv_dtype,
        )
        controls = tuple(build.weight(f"attention.{name}", (heads,)) for name in ("a_log", "time_step.bias", "skip"))
        out = state_pass(
            build,
            (mixed, joint.view(rows, heads), *controls),
            name="ssd_scan",
            heads=heads,
            key_dim=self.state,
            value_dim=self.head_dim,
            chunk=self.chunk,
            chunked_flops=scan_flops_per_token(self.head_dim, self.state, heads // groups, self.chunk),
            step_flops=scan_step_flops(self.head_dim, self.state),
            state_dtype=self.state_dtype,
        )
        out = gated_norm(build, out, joint.view(rows, width), width)
        output = build.schemes.of_output(scheme)
        return row_parallel_linear(
            build, out, k=width, n=self.hidden, part="attention.output", scheme=output, bias=self.bias
        )
