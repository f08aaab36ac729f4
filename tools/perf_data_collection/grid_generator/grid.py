"""Planning the new rows of a database's files, and writing them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tensor_cast.performance_model.profiling_database.coverage import REPLAYED_KERNELS
from tensor_cast.performance_model.profiling_database.kernel_table import kernels_of_type
from tensor_cast.performance_model.profiling_database.kernels import Kernel
from tensor_cast.performance_model.profiling_database.layouts import Layout
from tensor_cast.performance_model.profiling_database.schema import KEY_COLUMNS
from tensor_cast.performance_model.profiling_database.table import Table, read_table
from tools.perf_data_collection.grid_generator.candidates import (
    DEFAULT_DTYPES,
    FloatArray,
    Structure,
    axis_points,
)
from tools.perf_data_collection.grid_generator.completion import completed
from tools.perf_data_collection.grid_generator.existing import ExistingRows, Variant, existing_rows, identity
from tools.perf_data_collection.grid_generator.general import general_structures
from tools.perf_data_collection.grid_generator.rows import new_table
from tools.perf_data_collection.grid_generator.sampling import measuring_order
from tools.perf_data_collection.memory_estimator import operand_bytes

StructuresOf = Callable[[Kernel], Sequence[Structure]]


@dataclass(frozen=True)
class GridOptions:
    """How much is generated: ``rows`` a file and bytes a row, 0 for no limit."""

    rows: int
    seed: int
    max_bytes: float


@dataclass(frozen=True, eq=False)
class Batch:
    """New rows of one kernel in one layout: ``sizes`` (rows, widths and axes), completed for writing."""

    kernel: Kernel
    layout_dtypes: Variant
    sizes: FloatArray
    filled: Mapping[str, FloatArray]


@dataclass(frozen=True, eq=False)
class FilePlan:
    """What a file would get: ``batches``; of its ``candidates`` some are known, too large or beyond the limit."""

    path: Path
    table: Table | None
    batches: tuple[Batch, ...] = ()
    candidates: int = 0
    known: int = 0
    too_large: int = 0
    reason: str = ""
    timed: frozenset[Structure] = frozenset()
    present: frozenset[Structure] = frozenset()

    @property
    def kernel_type(self) -> str:
        """The kernel type that the file's name says."""
        return self.path.stem

    @property
    def new(self) -> int:
        """Rows that the file gets."""
        return sum(len(batch.sizes) for batch in self.batches)

    @property
    def beyond(self) -> int:
        """Candidates that are new and small enough, but beyond the limit of rows."""
        return self.candidates - self.known - self.too_large - self.new

    @property
    def planned(self) -> frozenset[Structure]:
        """Structures that the new rows have."""
        found = set()
        for batch in self.batches:
            widths = {tuple(row) for row in batch.sizes[:, : len(batch.kernel.widths)].tolist()}
            dtypes = tuple(sorted(batch.layout_dtypes[1]))
            found |= {Structure(batch.kernel, row, dtypes) for row in widths}
        return frozenset(found)

    def content(self) -> Table:
        """The file with its new rows behind the old ones."""
        assert self.table is not None
        return new_table(self.table, self.kernel_type, self.batches)


def plan_file(
    path: Path, structures: StructuresOf | None, options: GridOptions, generator: np.random.Generator
) -> FilePlan:
    """The rows that one file would get; ``structures`` of models, or ``None`` for the general axes.

    A file that does not exist yet is planned with the layouts that kernels usually have.

    Raises:
        ModelingError: the file cannot be read.
    """
    kernels = kernels_of_type(path.stem)
    if path.stem not in REPLAYED_KERNELS or not kernels:
        return FilePlan(path, None, reason="cannot be replayed")
    table = read_table(path) if path.exists() else Table([], [])
    if path.exists() and KEY_COLUMNS[0] not in table.columns:
        return FilePlan(path, None, reason=f"no column {KEY_COLUMNS[0]!r}")
    existing = existing_rows(table, kernels)
    timed, present = _structures(existing)
    chosen: list[tuple[ExistingRows, Sequence[Structure]]]
    if structures is None:
        in_file = [one for one in existing if one.variants]
        chosen = [(one, general_structures(one.kernel)) for one in in_file or existing]
    else:
        chosen = [(one, structures(one.kernel)) for one in existing]
    queues = [
        _queue(one, variant, members, options, generator)
        for one, asked in chosen
        for variant, members in _by_variant(one, asked)
    ]
    batches = _limited(queues, options.rows)
    return FilePlan(
        path=path,
        table=table,
        batches=batches,
        candidates=sum(queue.candidates for queue in queues),
        known=sum(queue.known for queue in queues),
        too_large=sum(queue.too_large for queue in queues),
        reason="" if queues else "the models ask for no such kernel" if structures else "no general axes",
        timed=timed,
        present=present,
    )


def rows_of_file(path: Path) -> FilePlan:
    """What a file has that is not to be extended.

    Raises:
        ModelingError: the file cannot be read.
    """
    timed, present = _structures(existing_rows(read_table(path), kernels_of_type(path.stem)))
    return FilePlan(path, None, timed=timed, present=present)


def _structures(existing: Iterable[ExistingRows]) -> tuple[frozenset[Structure], frozenset[Structure]]:
    """Those that are timed and those that have rows."""
    rows = list(existing)
    timed, present = (one.timed for one in rows), (one.present for one in rows)
    return frozenset().union(*timed), frozenset().union(*present)


@dataclass(frozen=True, eq=False)
class _Queue:
    """Candidates of one kernel and layout in the order in which to measure them."""

    kernel: Kernel
    variant: Variant
    sizes: FloatArray
    filled: Mapping[str, FloatArray]
    candidates: int
    known: int
    too_large: int


def _by_variant(existing: ExistingRows, structures: Iterable[Structure]) -> Iterable[tuple[Variant, list[Structure]]]:
    """Structures by the layout and dtypes that their rows will have."""
    groups: dict[Variant, list[Structure]] = {}
    for structure in structures:
        if all(width == int(width) for width in structure.widths):
            # A share of an expert's rows is no shape.
            groups.setdefault(_variant(existing, structure), []).append(structure)
    return groups.items()


def _variant(existing: ExistingRows, structure: Structure) -> Variant:
    """That of rows of the same widths; else the most frequent of the file with these dtypes; else the usual one."""
    asked = dict(structure.dtypes)
    same = existing.structures.get(structure.widths)
    ranked = ([same] if same else []) + [variant for variant, _ in existing.variants.most_common()]
    for layout, dtypes in ranked:
        known = dict(dtypes)
        if _names_widths(layout, structure) and all(known.get(name, dtype) == dtype for name, dtype in asked.items()):
            return layout, tuple(sorted({**DEFAULT_DTYPES, **known, **asked}.items()))
    return _usual_layout(existing.kernel, structure), tuple(sorted({**DEFAULT_DTYPES, **asked}.items()))


def _names_widths(layout: Layout, structure: Structure) -> bool:
    """Whether rows of ``layout`` tell all widths of ``structure``: a norm of rows has no heads."""
    kernel = structure.kernel
    if kernel.derive is not None:
        return True
    return all(
        width == 1.0 or name in layout.names for name, width in zip(kernel.widths, structure.widths, strict=True)
    )


def _usual_layout(kernel: Kernel, structure: Structure) -> Layout:
    """The likeliest layout; of rows without heads the likeliest that names none."""
    fitting = [layout for layout in kernel.layouts if _names_widths(layout, structure)]
    if structure.sizes.get("h") == 1.0:
        return next((layout for layout in fitting if "h" not in layout.names), fitting[0])
    return fitting[0]


def _queue(
    existing: ExistingRows,
    variant: Variant,
    structures: Sequence[Structure],
    options: GridOptions,
    generator: np.random.Generator,
) -> _Queue:
    kernel, (layout, dtypes) = existing.kernel, variant
    unique = list({structure.widths: structure for structure in structures}.values())
    identities = existing.identities
    widths = np.array([structure.widths for structure in unique], dtype=np.float64)
    points = axis_points(kernel)
    order = measuring_order(widths, points, options.rows, generator)
    of_structure, of_point = np.divmod(order, len(points))
    sizes = np.concatenate([widths[of_structure], points[of_point]], axis=1)
    hints = {
        name: np.array([structure.sizes.get(name, np.nan) for structure in unique])[of_structure]
        for name in {name for structure in unique for name, _ in structure.hints}
    }
    filled = completed(kernel, {**hints, **dict(zip(kernel.sizes, sizes.T, strict=True))})
    told = dict(dtypes)
    asked = identity(layout, told, sizes)
    known = np.array([one in identities for one in asked], dtype=np.bool_)
    # Structures that differ in nothing that a row tells would give the same rows again.
    identities.update(asked)
    size = np.broadcast_to(np.asarray(operand_bytes(layout, filled, told)), known.shape)
    too_large = ~known & (size > options.max_bytes) if options.max_bytes else np.zeros_like(known)
    kept = ~known & ~too_large
    return _Queue(
        kernel,
        variant,
        sizes[kept],
        {name: values[kept] for name, values in filled.items()},
        len(known),
        int(known.sum()),
        int(too_large.sum()),
    )


def _limited(queues: Sequence[_Queue], rows: int) -> tuple[Batch, ...]:
    """The first ``rows`` of all queues together, each queue giving in proportion to its length."""
    lengths = [len(queue.sizes) for queue in queues]
    total = sum(lengths)
    if rows and total > rows:
        ranks = np.concatenate([(np.arange(length) + 0.5) / length for length in lengths if length])
        of_queue = np.repeat(np.arange(len(queues)), lengths)
        first = np.argsort(ranks, kind="stable")[:rows]
        lengths = [int((of_queue[first] == index).sum()) for index in range(len(queues))]
    return tuple(
        Batch(
            queue.kernel,
            queue.variant,
            queue.sizes[:length],
            {name: values[:length] for name, values in queue.filled.items()},
        )
        for queue, length in zip(queues, lengths, strict=True)
        if length
    )
