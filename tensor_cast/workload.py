"""How much is computed: the batch of one forward step. Every number may be an array: a sweep is one workload."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from tensor_cast.checks import flag, real, whole
from tensor_cast.errors import ModelingError
from tensor_cast.quantity import Quantity, quantity


@dataclass(frozen=True, kw_only=True)
class TextWorkload:
    """One step of a language model over a batch.

    Args:
        num_queries: sequences in flight over the whole deployment; data-parallel ranks share them.
        query_length: new tokens a sequence in this step. A prefill's prompt, a decode's 1, or the tokens that a
            speculative decode verifies (``num_mtp_tokens + 1``).
        context_length: tokens of the sequence that are already in the KV cache.
        decode: whether this is a decode step (which decides the attention kernel and what is reported: TPOT, not TTFT).
        prefix_cache_hit_rate: share of a prefill's ``query_length`` that is found in the prefix cache, 0 to 1.
        num_mtp_tokens: tokens that the model's multi-token-prediction layers draft in a step.
        mtp_acceptance_rate: probability that a drafted token is accepted, given that all before it were; one rate, or
            one for each drafted token (kept as a tuple, whatever it is given as).
        num_draft_tokens: tokens that a draft model drafts in a step, instead of the model's own layers.
        acceptance_length: tokens that a speculative step yields a sequence, the model's own included, where that was
            measured; ``None``: it follows from ``mtp_acceptance_rate``.
        image_batch_size: images of each query, which a prefill encodes; their tokens come on top of ``query_length``.
        image_height, image_width: their size in pixels, before the model's own resizing.
        image_tokens: tokens that the images have already added to ``query_length``; ``None``: not yet, the model's rule
            adds them.

    Raises:
        ModelingError: a value is not a whole number in its range, or the combination has no meaning.
    """

    num_queries: Quantity
    query_length: Quantity
    context_length: Quantity = 0.0
    decode: bool = False
    prefix_cache_hit_rate: float = 0.0
    num_mtp_tokens: int = 0
    mtp_acceptance_rate: tuple[float, ...] = ()
    num_draft_tokens: int = 0
    acceptance_length: float | None = None
    image_batch_size: int = 0
    image_height: int | None = None
    image_width: int | None = None
    image_tokens: int | None = None

    def __post_init__(self) -> None:
        for name, minimum in (("num_queries", 1), ("query_length", 1), ("context_length", 0)):
            object.__setattr__(self, name, quantity(getattr(self, name), name, minimum=minimum))
        try:
            np.broadcast_shapes(*(np.shape(x) for x in (self.num_queries, self.query_length, self.context_length)))
        except ValueError:
            raise ModelingError(
                "num_queries, query_length and context_length are arrays of shapes "
                f"{np.shape(self.num_queries)}, {np.shape(self.query_length)} and {np.shape(self.context_length)}, "
                "which do not broadcast together."
            ) from None
        self._check_kinds()
        if not 0.0 <= self.prefix_cache_hit_rate < 1.0:
            raise ModelingError(
                f"prefix_cache_hit_rate must be at least 0 and less than 1, got {self.prefix_cache_hit_rate:g}."
            )
        if self.decode and np.any(np.less(self.context_length, 1)):
            raise ModelingError("A decode step needs context_length of at least 1: the tokens it attends to.")
        if self.decode and self.prefix_cache_hit_rate:
            raise ModelingError("prefix_cache_hit_rate belongs to a prefill: a decode has no prompt left to compute.")
        if self.num_mtp_tokens and not self.decode:
            raise ModelingError("num_mtp_tokens belongs to a decode step: a prefill drafts nothing.")
        self._check_images()
        self._check_drafts()
        rates = self.mtp_acceptance_rate
        if any(not 0.0 <= rate <= 1.0 for rate in rates):
            raise ModelingError(f"mtp_acceptance_rate must lie between 0 and 1, got {list(rates)}.")
        if rates and not self.drafted_tokens:
            raise ModelingError("mtp_acceptance_rate is given, but num_mtp_tokens is 0: nothing is drafted.")
        if rates and len(rates) not in (1, self.drafted_tokens):
            raise ModelingError(
                f"mtp_acceptance_rate has {len(rates)} values for {self.drafted_tokens} drafted tokens: "
                "give one rate, or one a token."
            )

    def _check_kinds(self) -> None:
        """Everything but the quantities is one value."""
        set_field = object.__setattr__
        set_field(self, "decode", flag(self.decode, "decode"))
        set_field(self, "prefix_cache_hit_rate", real(self.prefix_cache_hit_rate, "prefix_cache_hit_rate"))
        for name in ("num_mtp_tokens", "num_draft_tokens", "image_batch_size"):
            set_field(self, name, whole(getattr(self, name), name, minimum=0))
        for name, minimum in (("image_height", 1), ("image_width", 1), ("image_tokens", 0)):
            if getattr(self, name) is not None:
                set_field(self, name, whole(getattr(self, name), name, minimum=minimum))
        rates: Any = self.mtp_acceptance_rate
        if not isinstance(rates, tuple | list | np.ndarray):
            rates = (rates,)
        set_field(self, "mtp_acceptance_rate", tuple(real(rate, "mtp_acceptance_rate") for rate in rates))
        if self.acceptance_length is not None:
            set_field(self, "acceptance_length", real(self.acceptance_length, "acceptance_length"))

    def _check_drafts(self) -> None:
        if self.num_draft_tokens and not self.decode:
            raise ModelingError("num_draft_tokens belongs to a decode step: a prefill drafts nothing.")
        if self.num_draft_tokens and self.num_mtp_tokens:
            raise ModelingError("Tokens are drafted by MTP layers (num_mtp_tokens) or a draft model, not by both.")
        length = self.acceptance_length
        if length is None:
            return
        if not self.drafted_tokens:
            raise ModelingError("acceptance_length needs drafted tokens: num_mtp_tokens or num_draft_tokens.")
        if self.mtp_acceptance_rate:
            raise ModelingError("Give acceptance_length or mtp_acceptance_rate, not both: one follows from the other.")
        if not 1.0 <= length <= self.drafted_tokens + 1:
            raise ModelingError(
                f"acceptance_length must lie between 1 and {self.drafted_tokens + 1}, the drafted tokens and one more, "
                f"got {length:g}."
            )

    @property
    def drafted_tokens(self) -> int:
        """Tokens drafted in a step, by whichever way."""
        return self.num_mtp_tokens or self.num_draft_tokens

    def _check_images(self) -> None:
        if self.image_batch_size and (self.image_height is None or self.image_width is None):
            raise ModelingError("image_batch_size needs image_height and image_width: the size of an image in pixels.")
        if not self.image_batch_size and (self.image_height or self.image_width):
            raise ModelingError("image_height and image_width need image_batch_size: how many images a query has.")
        if self.image_batch_size and self.decode:
            raise ModelingError(
                "image_batch_size belongs to a prefill: in a decode the images' tokens are part of context_length."
            )

    @property
    def computed_query_length(self) -> Quantity:
        """New tokens a sequence that are really computed: what the prefix cache does not hold, at least one."""
        if not self.prefix_cache_hit_rate:
            return self.query_length
        return np.maximum(self.query_length - np.floor(self.query_length * self.prefix_cache_hit_rate), 1.0)

    @property
    def cached_length(self) -> Quantity:
        """Tokens a sequence that are in the KV cache before the step."""
        return self.context_length + (self.query_length - self.computed_query_length)

    @property
    def sequence_length(self) -> Quantity:
        """Tokens a sequence in the KV cache after the step."""
        return self.context_length + self.query_length

    @property
    def tokens_per_sequence(self) -> Quantity:
        """Tokens that the step yields a sequence: in a prefill its prompt, in a decode the expected accepted tokens.

        A verified token follows when every draft before it was accepted: ``1 + a1 + a1 a2 + ...`` (Leviathan et al.,
        arXiv 2211.17192, equation 1, with a rate a position). Without acceptance rates one token is counted, which is
        the lower bound. A step never yields more than the ``query_length`` tokens that it verifies, and without
        drafting just these.
        """
        if not self.decode or not self.drafted_tokens:
            return self.query_length
        return np.minimum(self._expected_tokens, self.query_length)

    @property
    def _expected_tokens(self) -> float:
        if self.acceptance_length is not None:
            return float(self.acceptance_length)
        if not self.mtp_acceptance_rate:
            return 1.0
        rates = self.mtp_acceptance_rate
        if len(rates) == 1:
            rates = rates * self.drafted_tokens
        return 1.0 + float(np.cumprod(rates).sum())
