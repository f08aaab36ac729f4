"""A diffusion pipeline as structure: its denoisers, text encoders, autoencoder, and what sizes it can make."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from tensor_cast.errors import ModelingError
from tensor_cast.models.diffusion.denoiser import Denoiser, DenoiserInput, Latent, Patch
from tensor_cast.models.diffusion.references import References
from tensor_cast.models.diffusion.text_encoders import TextEncoder
from tensor_cast.models.diffusion.vae import Vae
from tensor_cast.quantity import Quantity
from tensor_cast.video_workload import VideoWorkload


@dataclass(frozen=True)
class Pipeline:
    """``denoisers``: one, or the one of high and that of low noise, split at ``boundary_ratio`` of the time.

    ``temporal`` and ``spatial`` are the VAE's factors of compression. ``encodes`` says how a first frame that is given
    goes through the VAE, if at all: alone, or as a ``video`` of all frames, the others blank. ``references``: images to
    edit are given. ``unpriced`` names components that are known to exist but not what they cost.
    """

    name: str
    kind: str
    denoisers: tuple[tuple[str, Denoiser], ...]
    text_encoders: tuple[tuple[str, TextEncoder], ...]
    vae: Vae | None
    temporal: int
    spatial: int
    makes_video: bool
    boundary_ratio: float | None = None
    flow_shift: float | None = None
    encodes: Literal["image", "video"] | None = None
    references: References | None = None
    origin: str = ""
    unpriced: tuple[str, ...] = ()
    ignored_keys: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def denoiser(self) -> Denoiser:
        """The first denoiser; a second has the same sizes."""
        return self.denoisers[0][1]

    @property
    def patch(self) -> Patch:
        """Latent elements of a token."""
        return self.denoiser.patch

    def latent(self, workload: VideoWorkload) -> Latent:
        """Size of the output's latent."""
        frames = (workload.frame_num - 1.0) / self.temporal + 1.0
        return Latent(frames, workload.height / self.spatial, workload.width / self.spatial)

    def given_latents(self, workload: VideoWorkload) -> list[tuple[Latent, float]]:
        """Sizes of what is given and goes through the VAE, each with how many there are."""
        found = []
        if self.encodes is not None:
            whole = self.latent(workload)
            found.append((whole if self.encodes == "video" else replace(whole, frames=1.0), 1.0))
        if self.references is not None:
            found.append((self._reference_latent(self.references, workload), self.references.count(workload)))
        return found

    def reference_tokens(self, workload: VideoWorkload) -> Quantity:
        """Tokens of given images beside the output's."""
        if self.references is None:
            return 0.0
        latent = self._reference_latent(self.references, workload)
        return self.references.count(workload) * self.patch.tokens(latent)

    def _reference_latent(self, references: References, workload: VideoWorkload) -> Latent:
        height, width = references.latent_size(workload)
        return Latent(1.0, height / self.spatial, width / self.spatial)

    def prompt_tokens(self, workload: VideoWorkload) -> Quantity:
        """Tokens of a prompt as it is encoded: the text, and given images."""
        images = 0.0 if self.references is None else self.references.prompt_tokens(workload)
        return workload.seq_len + images

    def denoiser_input(self, workload: VideoWorkload) -> DenoiserInput:
        """What one forward takes."""
        return DenoiserInput(self.latent(workload), self.prompt_tokens(workload), self.reference_tokens(workload))

    def video_tokens(self, workload: VideoWorkload) -> Quantity:
        """Tokens of the output, of one sample."""
        return self.patch.tokens(self.latent(workload))

    def check(self, workload: VideoWorkload) -> None:
        """Refuse sizes that the VAE and the patches do not divide.

        Raises:
            ModelingError: naming each wrong size and the nearest right ones.
        """
        wrong = [
            *_not_multiple("height", workload.height, self.spatial, self.patch.height),
            *_not_multiple("width", workload.width, self.spatial, self.patch.width),
            *self._wrong_frames(workload.frame_num),
        ]
        if workload.reference_images is not None and self.references is None:
            wrong.append(f"reference_images is given, but {self.name} takes none")
        if wrong:
            raise ModelingError(f"{self.name}: {'; '.join(wrong)}.")

    def check_ulysses(self, ranks: int) -> None:
        """Refuse a number of ranks that does not divide the heads.

        Raises:
            ModelingError: naming the nearest sizes that do.
        """
        heads = self.denoiser.heads
        if heads % ranks == 0:
            return
        valid = [size for size in range(1, heads + 1) if heads % size == 0]
        below = max(size for size in valid if size < ranks)
        above = next((size for size in valid if size > ranks), None)
        nearest = (
            f"the nearest that does is {below}" if above is None else f"the nearest that do are {below} and {above}"
        )
        raise ModelingError(
            f"--ulysses-size {ranks} does not divide the {heads} attention heads of {self.name}: {nearest}."
        )

    def _wrong_frames(self, frames: Quantity) -> list[str]:
        if not self.makes_video:
            return ["frame_num is given, but it makes images"] if np.any(np.not_equal(frames, 1)) else []
        wrong = _first(frames, np.mod(np.subtract(frames, 1.0), self.temporal) != 0)
        if wrong is None:
            return []
        below = (wrong - 1) // self.temporal * self.temporal + 1
        return [f"frame_num {wrong} is not {self.temporal}k + 1: the nearest are {below} and {below + self.temporal}"]

    def with_note(self, note: str) -> Pipeline:
        """The same with one more note."""
        return replace(self, notes=(*self.notes, note))


def _not_multiple(name: str, size: Quantity, spatial: int, patch: int) -> list[str]:
    multiple = spatial * patch
    wrong = _first(size, np.mod(size, multiple) != 0)
    if wrong is None:
        return []
    below = wrong // multiple * multiple
    nearest = f"{below} and {below + multiple}" if below else f"{multiple}"
    return [
        f"{name} {wrong} is not a multiple of {multiple} (VAE {spatial} x patch {patch}): "
        f"the nearest {'are' if below else 'is'} {nearest}"
    ]


def _first(values: Quantity, wrong: object) -> int | None:
    """The first of ``values`` that is wrong."""
    mask = np.asarray(wrong)
    return int(np.asarray(values)[mask].flat[0]) if mask.any() else None
