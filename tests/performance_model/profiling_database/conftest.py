"""Rows of a database, built by the tests."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tensor_cast.performance_model.profiling_database.merge import ProfiledRow

BuildRow = Callable[..., ProfiledRow]


@pytest.fixture
def measured_row() -> BuildRow:
    """A profiled row of one input and one output with the given shape and mean."""

    def build(shape: str, mean: float, *, dtype: str = "FLOAT", count: int = 2, **runtime: str) -> ProfiledRow:
        return ProfiledRow(
            base=("dynamic", "AI_VECTOR_CORE", f'"{shape}"', dtype, "ND", f'"{shape}"', dtype, "ND"),
            profile=(f"{mean:.6f}", f"{mean:.6f}", "0.000000", *["1.500000"] * 25, str(count)),
            runtime={f"Runtime {name}": value for name, value in runtime.items()},
        )

    return build
