"""Why a row was not measured."""

from __future__ import annotations

from tensor_cast.errors import ModelingError


class RowError(ModelingError):
    """A row that cannot be replayed as it is; the run goes on with the next one."""


class RowSkippedError(ModelingError):
    """A row that this machine cannot run, though another could."""
