"""Which quantisation each kind of module has."""

from __future__ import annotations

from dataclasses import dataclass

from tensor_cast.deployment import Deployment
from tensor_cast.quantization import LINEAR_SCHEMES, LinearScheme

UNQUANTIZED = LINEAR_SCHEMES["DISABLED"]


@dataclass(frozen=True)
class ModuleSchemes:
    """Schemes of a layer's linear modules: one for all in a deployment's own quantisation, told apart in a
    checkpoint's. Routers, gates and a few projections to single numbers are never quantised.
    """

    attention: LinearScheme = UNQUANTIZED
    mlp: LinearScheme = UNQUANTIZED
    shared_experts: LinearScheme = UNQUANTIZED
    experts: LinearScheme = UNQUANTIZED
    head: LinearScheme = UNQUANTIZED
    attention_output: LinearScheme | None = None

    unquantized = UNQUANTIZED

    def of_output(self, attention: LinearScheme) -> LinearScheme:
        """Scheme of attention's output projection; that of the others (``attention``) unless it is told apart."""
        return attention if self.attention_output is None else self.attention_output

    @staticmethod
    def of(deployment: Deployment) -> ModuleSchemes:
        """What a deployment asks for. Under ``CHECKPOINT`` layers bring their own."""
        dense = deployment.dense_scheme
        return ModuleSchemes(dense, dense, dense, deployment.expert_scheme, deployment.head_scheme)
