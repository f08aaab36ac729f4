"""Token embedding and output head, vocabularies split over ranks."""

from __future__ import annotations

from dataclasses import dataclass
from math import lcm

from tensor_cast.layers.build import Build
from tensor_cast.layers.linear import linear, reduce_partial
from tensor_cast.ops import Gather, Tensor
from tensor_cast.parallelism import RankGroup

# Rows that engines pad a split vocabulary to (vLLM's VocabParallelEmbedding, DEFAULT_VOCAB_PADDING_SIZE).
VOCABULARY_MULTIPLE = 64


def padded_vocabulary(vocabulary: int, ranks: int) -> int:
    """Rows of the table after padding, so that ``ranks`` share them evenly; one rank pads nothing."""
    if ranks == 1:
        return vocabulary
    multiple = lcm(VOCABULARY_MULTIPLE, ranks)
    return -(-vocabulary // multiple) * multiple


@dataclass(frozen=True)
class Vocabulary:
    """The embedding table and the output head. ``tied`` heads are the table itself.

    ``scaled`` embeddings are multiplied by a constant (Gemma); ``softcap`` squashes logits with tanh (Gemma 2).
    """

    size: int
    hidden: int
    tied: bool = False
    scaled: bool = False
    softcap: bool = False
    head_bias: bool = False

    def embed(self, build: Build) -> Tensor:
        """Token ids -> residual rows of hidden."""
        rows = build.tokens
        with build.scope("vocabulary"):
            table = build.weight("embedding", (padded_vocabulary(self.size, build.tp) // build.tp, self.hidden))
        out = build.activation(rows, self.hidden)
        ids = Tensor((rows,), "int32", "index")
        build.emit(Gather(name="embedding", part="embedding", inputs=(ids, table), outputs=(out,)))
        if self.scaled:
            scaled = build.activation(rows, self.hidden)
            build.elementwise("mul", "embedding.scale", (out,), (scaled,), flops_per_element=1.0)
            out = scaled
        return reduce_partial(build, out, "embedding")

    def logits(self, build: Build, x: Tensor, *, last_only: bool) -> Tensor:
        """Normalised hidden states of all tokens -> the token after each, or after the last of each sequence alone.

        A head over more ranks than ``tp`` multiplies the tokens of several data-parallel ranks; each gets its own
        logits back (vLLM-Ascend's ``lmhead_tensor_parallel_size``: all-gather before the head, all-to-all after it).
        """
        ranks, tp = build.parallel.lmhead_tp, build.tp
        own_rows = x.shape[0]
        if last_only:
            own_rows = build.queries
            last = build.activation(own_rows, self.hidden)
            build.elementwise("index_select", "lm_head.last_tokens", (last,), (last,), flops_per_element=0.0)
            x = last
        met = RankGroup(max(1, ranks // tp), tp)
        rows = own_rows * met.size
        x = build.communicate("all_gather", "lm_head", x, met, (rows, self.hidden))
        scheme = build.schemes.head
        shared = self.tied and ranks == tp and not scheme.quantizes_weight
        local = padded_vocabulary(self.size, ranks) // ranks
        with build.scope("vocabulary"):
            logits = linear(
                build,
                x,
                k=self.hidden,
                n=local,
                part="embedding" if shared else "lm_head",
                scheme=scheme,
                bias=self.head_bias,
            )
        if self.softcap:
            capped = build.activation(rows, local)
            build.elementwise("softcap", "lm_head.softcap", (logits,), (capped,), flops_per_element=3.0)
            logits = capped
        logits = build.communicate("all_to_all", "lm_head", logits, met, (own_rows, local * met.size))
        shared_over = RankGroup(min(ranks, tp))
        logits = build.communicate("all_gather", "lm_head", logits, shared_over, (own_rows, local * ranks))
        token = build.activation(own_rows, 1, dtype="int32")
        build.elementwise("arg_max", "sampling", (logits,), (token,), flops_per_element=1.0)
        return token
