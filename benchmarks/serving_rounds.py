"""How many prompts' time a request spends before its first token and between its tokens, by how an engine schedules.

Where requests come and go at any time, a new one waits for a share of the others' prompts, and those of a share of the
others stop its decode: shares that are fitted to runs.

SGLang computes waiting prompts before it decodes on. Of equally long requests, those that begin together therefore end
together: rounds, in which all prompts of a replica are computed first, a batch of at most so many tokens after another.
With ``k`` the share of all prompts that a batch holds, a first token comes on average after ``(1 + k) / 2`` of them,
and the other ``(1 - k) / 2`` lie between it and the second one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

FloatArray = np.ndarray[Any, np.dtype[np.float64]]

# SGLang's own --max-prefill-tokens (its server arguments).
BATCH_TOKENS = 16384.0


@dataclass(frozen=True)
class Company:
    """Other requests of a replica, and the share ``k`` of a round's prompts in a batch; NaN where there are no rounds.

    Both are arrays over runs.
    """

    others: FloatArray
    batch_share: FloatArray

    def prompts_before(self, queue_share: float) -> FloatArray:
        """Prompts that are computed before a first token, its own among them."""
        together = (self.others + 1.0) * (1.0 + self.batch_share) / 2.0
        return np.where(np.isnan(self.batch_share), 1.0 + queue_share * self.others, together)

    def prompts_between(self, prefill_share: float) -> FloatArray:
        """Prompts that are computed while a request decodes."""
        together = (self.others + 1.0) * (1.0 - self.batch_share) / 2.0
        return np.where(np.isnan(self.batch_share), prefill_share * self.others, together)


def company(engine: str, requests: FloatArray, prompt: FloatArray, varied: FloatArray) -> Company:
    """Company of a request among ``requests`` of a replica with prompts of so many tokens.

    ``varied`` flags runs whose client draws lengths, so that their requests fall out of step.
    """
    share = np.minimum(1.0, BATCH_TOKENS / (requests * prompt))
    in_rounds = (engine == "sglang") & ~np.asarray(varied, dtype=bool)
    return Company(requests - 1.0, np.where(in_rounds, share, np.nan))
