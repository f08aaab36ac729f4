"""How much a generation computes: resolution, frames, steps. Every number may be an array: a sweep is one workload."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tensor_cast.errors import ModelingError
from tensor_cast.quantity import Quantity, quantity

QUANTITIES = ("height", "width", "frame_num", "sample_step", "batch_size", "seq_len")


@dataclass(frozen=True, kw_only=True)
class VideoWorkload:
    """One generation of videos, or of images (``frame_num`` 1).

    Args:
        height, width: of the output, in pixels.
        frame_num: frames of the output.
        sample_step: denoising steps.
        batch_size: samples generated at once.
        seq_len: text tokens a prompt.
        use_cfg: classifier-free guidance: a second forward a step, for the negative prompt.
        flow_shift: shift of the flow-matching schedule, which decides how many steps each of two denoisers runs;
            ``None``: the pipeline's own.
        reference_images: images that an editing model is given; ``None``: one where the model takes any.

    Raises:
        ModelingError: a value is not a whole number in its range, or the arrays do not broadcast.
    """

    height: Quantity
    width: Quantity
    frame_num: Quantity = 1.0
    sample_step: Quantity = 28.0
    batch_size: Quantity = 1.0
    seq_len: Quantity = 64.0
    use_cfg: bool = False
    flow_shift: float | None = None
    reference_images: int | None = None

    def __post_init__(self) -> None:
        for name in QUANTITIES:
            object.__setattr__(self, name, quantity(getattr(self, name), name, minimum=1))
        try:
            self.shape  # noqa: B018
        except ValueError:
            shapes = ", ".join(f"{name} {np.shape(getattr(self, name))}" for name in QUANTITIES)
            raise ModelingError(f"The arrays of the workload do not broadcast together: {shapes}.") from None
        if self.flow_shift is not None and not 0.0 < self.flow_shift < float("inf"):
            raise ModelingError(f"flow_shift must be a number above 0, got {self.flow_shift:g}.")
        if self.reference_images is not None and self.reference_images < 1:
            raise ModelingError(f"reference_images must be at least 1, got {self.reference_images}.")

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape that all quantities broadcast to; empty for one point."""
        return np.broadcast_shapes(*(np.shape(getattr(self, name)) for name in QUANTITIES))

    @property
    def prompts(self) -> int:
        """Prompts a sample: the negative one counts."""
        return 2 if self.use_cfg else 1
