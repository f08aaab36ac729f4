"""Images that an editing pipeline is given: as tokens beside the output's, and in the prompt.

After QwenImageEditPipeline and QwenImageEditPlusPipeline of diffusers.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tensor_cast.quantity import Quantity
from tensor_cast.video_workload import VideoWorkload

# calculate_dimensions brings a given image to an area, its sides to multiples of 32.
_MULTIPLE = 32
# Area before the VAE.
_LATENT_AREA = 1024 * 1024
# A token of Qwen2.5-VL: 2 x 2 patches of 14 pixels a side.
_PROMPT_TOKEN_SIDE = 28


@dataclass(frozen=True)
class References:
    """``prompt_area``: pixels of a given image as the language model that encodes the prompt sees it.

    The images are taken to have the output's shape, and all the same.
    """

    prompt_area: int

    def count(self, workload: VideoWorkload) -> float:
        """Given images; one unless the workload says how many."""
        return float(workload.reference_images or 1)

    def latent_size(self, workload: VideoWorkload) -> tuple[Quantity, Quantity]:
        """Height and width, in pixels, of an image before the VAE."""
        return _sides(workload, _LATENT_AREA)

    def prompt_tokens(self, workload: VideoWorkload) -> Quantity:
        """Tokens of all given images in a prompt."""
        height, width = (np.rint(side / _PROMPT_TOKEN_SIDE) for side in _sides(workload, self.prompt_area))
        tokens: Quantity = self.count(workload) * height * width
        return tokens


def _sides(workload: VideoWorkload, area: int) -> tuple[Quantity, Quantity]:
    ratio = workload.width / workload.height
    width = np.sqrt(area * ratio)
    height, width = (np.rint(side / _MULTIPLE) * _MULTIPLE for side in (width / ratio, width))
    return height, width
