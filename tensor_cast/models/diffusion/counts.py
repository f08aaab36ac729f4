"""Parameters, FLOPs and weights of a pipeline, read off its graphs, so that they cannot differ from what is priced."""

from __future__ import annotations

from dataclasses import dataclass

from tensor_cast.graph import Graph
from tensor_cast.layers.conv import ComponentBuild
from tensor_cast.layers.dit import DenoiserBuild
from tensor_cast.models.diffusion.denoiser import Denoiser, DenoiserInput, Latent
from tensor_cast.models.diffusion.pipeline import Pipeline
from tensor_cast.models.diffusion.text_encoders import graph_parameters
from tensor_cast.models.diffusion.vae import Pass, Vae
from tensor_cast.quantity import Quantity
from tensor_cast.video_deployment import VideoDeployment


def denoiser_graph(
    denoiser: Denoiser, request: DenoiserInput, *, batch: Quantity, ranks: int, deployment: VideoDeployment
) -> Graph:
    """The kernels of one forward on one rank."""
    graph = Graph()
    build = DenoiserBuild(graph=graph, dtype=deployment.dtype, deployment=deployment, batch=batch, ranks=ranks)
    denoiser.forward(build, request)
    return graph


def vae_graph(vae: Vae, run: Pass, *, decode: bool, batch: Quantity, dtype: str, fused: bool) -> Graph:
    """The kernels of one run of the decoder, or of the encoder."""
    graph = Graph()
    build = ComponentBuild(graph=graph, dtype=dtype, batch=batch, fused=fused)
    with graph.block("vae.decode" if decode else "vae.encode"):
        (vae.decode if decode else vae.encode)(build, run)
    return graph


def matrix_flops(graph: Graph) -> Quantity:
    """FLOPs of the matrix units over all blocks."""
    return sum((block.count * node.op.matrix_flops for block, node in graph.nodes()), start=0.0)


def weight_bytes(graph: Graph) -> Quantity:
    """Bytes of all weights of a graph."""
    return sum((w.bytes * block.weight_copies for block in graph.blocks for w in block.weights()), start=0.0)


def denoiser_parameters(denoiser: Denoiser) -> int:
    """Parameters of a denoiser."""
    patch = denoiser.patch
    smallest = DenoiserInput(Latent(float(patch.frames), float(patch.height), float(patch.width)), 1.0)
    return graph_parameters(denoiser_graph(denoiser, smallest, batch=1.0, ranks=1, deployment=VideoDeployment()))


@dataclass(frozen=True)
class VaeParameters:
    """Parameters of an autoencoder; ``total`` has the convolutions between its sides and the latent too."""

    encoder: int
    decoder: int
    total: int


def vae_parameters(vae: Vae) -> VaeParameters:
    """Parameters of an autoencoder."""
    # A run that is not the first has the layers that the first leaves out too.
    run = Pass(Latent(1.0, 1.0, 1.0), 1.0, first=False)
    counts = {"encoder": 0, "decoder": 0, "quant": 0, "post_quant": 0}
    for decode in (False, True):
        graph = vae_graph(vae, run, decode=decode, batch=1.0, dtype="bfloat16", fused=False)
        for block in graph.blocks:
            for weight in block.weights():
                counts[weight.name.split(".")[0]] += int(weight.elements)
    return VaeParameters(counts["encoder"], counts["decoder"], sum(counts.values()))


def pipeline_parameters(pipeline: Pipeline) -> dict[str, int]:
    """Parameters of each component whose structure is known."""
    counted: dict[Denoiser, int] = {}
    for _, denoiser in pipeline.denoisers:
        if denoiser not in counted:
            counted[denoiser] = denoiser_parameters(denoiser)
    parameters = {name: counted[denoiser] for name, denoiser in pipeline.denoisers}
    parameters |= {name: encoder.parameters for name, encoder in pipeline.text_encoders}
    if pipeline.vae is not None:
        parameters["vae"] = vae_parameters(pipeline.vae).total
    return parameters
