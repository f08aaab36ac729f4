"""How many patches an encoder sees of an image, and how many tokens the language model: each model's own rule."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, floor, inf, sqrt

from tensor_cast.errors import ModelingError
from tensor_cast.layers.vision import ImageGrid


@dataclass(frozen=True)
class SmartResize:
    """Qwen-VL's rule: sides rounded to multiples of patch x merge, the area kept within limits by one common factor.

    Source: ``smart_resize`` of Qwen2-VL's image processor. ``min_pixels`` and ``max_pixels`` are those of the model's
    published ``preprocessor_config.json``.
    """

    patch: int
    merge: int
    min_pixels: int
    max_pixels: int

    def grid(self, height: int, width: int) -> ImageGrid:
        """Patches and tokens of an image of ``height`` x ``width`` pixels."""
        if max(height, width) > 200 * min(height, width):
            raise ModelingError(
                f"An image of {height} x {width} is over 200 times as long as broad: the model's processor refuses it."
            )
        unit = self.patch * self.merge
        # Python's round, as in the source: halves go to the even neighbour.
        rows, columns = round(height / unit) * unit, round(width / unit) * unit
        if rows * columns > self.max_pixels:
            factor = sqrt(height * width / self.max_pixels)
            rows = max(unit, floor(height / factor / unit) * unit)
            columns = max(unit, floor(width / factor / unit) * unit)
        elif rows * columns < self.min_pixels:
            factor = sqrt(self.min_pixels / (height * width))
            rows, columns = ceil(height * factor / unit) * unit, ceil(width * factor / unit) * unit
        tokens = (rows // unit) * (columns // unit)
        return ImageGrid(rows // self.patch, columns // self.patch, tokens)


@dataclass(frozen=True)
class FixedSize:
    """Every image is resized to ``side`` x ``side`` pixels and leaves ``tokens`` (Gemma 3)."""

    patch: int
    side: int
    tokens: int

    def grid(self, height: int, width: int) -> ImageGrid:
        """The same for every image."""
        return ImageGrid(self.side // self.patch, self.side // self.patch, self.tokens)


@dataclass(frozen=True)
class PooledBudget:
    """Gemma 4's rule: the area is scaled to ``max_tokens`` squares of ``pool`` x ``pool`` patches, the shape kept,
    sides rounded down to whole squares; each square leaves a token.
    """

    patch: int
    pool: int
    max_tokens: int

    def grid(self, height: int, width: int) -> ImageGrid:
        """Patches and tokens of an image of ``height`` x ``width`` pixels."""
        unit = self.patch * self.pool
        factor = sqrt(self.max_tokens * unit**2 / (height * width))
        rows, columns = floor(factor * height / unit), floor(factor * width / unit)
        longest = self.max_tokens
        if rows == 0 and columns == 0:
            raise ModelingError(f"An image of {height} x {width} leaves no patch.")
        if rows == 0:
            rows, columns = 1, min(floor(width / height), longest)
        elif columns == 0:
            rows, columns = min(floor(height / width), longest), 1
        return ImageGrid(rows * self.pool, columns * self.pool, rows * columns)


@dataclass(frozen=True)
class NaViTResize:
    """Kimi-K2.5's rule: never enlarged, shrunk to ``max_patches`` and ``max_side`` a side, padded to whole merges."""

    patch: int
    merge: int
    max_patches: int
    max_side: int

    def grid(self, height: int, width: int) -> ImageGrid:
        """Patches and tokens of an image of ``height`` x ``width`` pixels."""
        count = max(1, height // self.patch) * max(1, width // self.patch)
        longest = self.max_side * self.patch
        scale = min(1.0, sqrt(self.max_patches / count), longest / height, longest / width)
        unit = self.patch * self.merge
        rows, columns = (ceil(min(max(1, int(side * scale)), longest) / unit) for side in (height, width))
        return ImageGrid(rows * self.merge, columns * self.merge, rows * columns)


@dataclass(frozen=True)
class AspectTiles:
    """InternVL's rule: the grid of tiles of the closest aspect ratio, and a thumbnail beside more than one tile.

    Source: ``dynamic_preprocess`` of InternVL's published code; transformers' ``get_optimal_tiled_canvas`` is alike.
    """

    patch: int
    side: int
    min_tiles: int
    max_tiles: int
    thumbnail: bool
    tokens: int

    def grid(self, height: int, width: int) -> ImageGrid:
        """Patches and tokens of an image of ``height`` x ``width`` pixels."""
        best, closest = 1, inf
        for columns, rows in self._grids():
            distance = abs(width / height - columns / rows)
            # Of equally close grids the larger wins if the image fills more than half of it.
            enough = height * width > 0.5 * self.side**2 * columns * rows
            if distance < closest or (distance == closest and enough):
                best, closest = columns * rows, distance
        tiles = best + (self.thumbnail and best > 1)
        return ImageGrid(self.side // self.patch, self.side // self.patch, self.tokens, tiles)

    def _grids(self) -> list[tuple[int, int]]:
        sides = range(1, self.max_tiles + 1)
        grids = [(columns, rows) for columns in sides for rows in sides]
        allowed = [grid for grid in grids if self.min_tiles <= grid[0] * grid[1] <= self.max_tiles]
        return sorted(allowed, key=lambda grid: grid[0] * grid[1])


@dataclass(frozen=True)
class CanvasTiles:
    """Llama 4's rule: the canvas of at most ``max_tiles`` tiles that scales the image up least, else down least.

    Of several the smallest; more than one tile are joined by the whole image as one more. Source: ``get_best_fit`` of
    transformers' ``Llama4ImageProcessorFast``.
    """

    patch: int
    side: int
    max_tiles: int
    tokens: int

    def grid(self, height: int, width: int) -> ImageGrid:
        """Patches and tokens of an image of ``height`` x ``width`` pixels."""
        sides = range(1, self.max_tiles + 1)
        scales = [
            (min(rows * self.side / height, columns * self.side / width), rows * columns)
            for rows in sides
            for columns in sides
            if rows * columns <= self.max_tiles
        ]
        enlarging = [scale for scale, _ in scales if scale >= 1.0]
        chosen = min(enlarging) if enlarging else max(scale for scale, _ in scales)
        best = min(tiles for scale, tiles in scales if scale == chosen)
        tiles = best + (best > 1)
        return ImageGrid(self.side // self.patch, self.side // self.patch, self.tokens, tiles)


ImageRule = SmartResize | FixedSize | PooledBudget | NaViTResize | AspectTiles | CanvasTiles
