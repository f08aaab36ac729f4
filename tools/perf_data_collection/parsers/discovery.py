"""Which files of a profiling directory hold kernels."""

from __future__ import annotations

import os
import re
from pathlib import Path

from tensor_cast.errors import ModelingError
from tensor_cast.performance_model.profiling_database.table import read_failure

_TORCH_NPU_OUTPUT = "ASCEND_PROFILER_OUTPUT"
_TABLE = re.compile(r"\.csv(\.(gz|bz2|xz|zst|zip))?$", re.IGNORECASE)


def profile_files(path: Path) -> tuple[list[Path], list[Path]]:
    """Files to parse under ``path``, sorted, and those left out because another one is a copy of them.

    A file is taken as it is, whatever its name. A directory is searched for ``*kernel_details*.csv`` and
    ``op_summary*.csv`` in any case; packed ones are among them, for reading them to say that they must be unpacked.
    torch_npu writes ``kernel_details.csv`` as a copy of the ``op_summary`` of the same run, which lies in a ``PROF_*``
    directory beside ``ASCEND_PROFILER_OUTPUT``: taking both would count every kernel twice.

    Raises:
        ModelingError: the path does not exist or cannot be read, or a directory holds no such file.
    """
    try:
        if path.is_file():
            return [path], []
        if not path.is_dir():
            raise ModelingError(f"The profiling path {path} does not exist.")
        tables = _tables_below(path)
    except OSError as error:
        raise read_failure(Path(error.filename or path), error) from None
    details = [file for file in tables if "kernel_details" in file.stem.lower()]
    summaries = [file for file in tables if file.stem.lower().startswith("op_summary")]
    if not details and not summaries:
        raise ModelingError(
            f"{path} holds no kernel_details*.csv or op_summary_*.csv: give the directory that the profiler wrote, "
            "after its analysis has finished."
        )
    copied = {
        file.parent.parent for file in details if file.parent.name == _TORCH_NPU_OUTPUT and not _is_packed(file.name)
    }
    left_out = [file for file in summaries if not copied.isdisjoint(file.parents)]
    return sorted({*details, *summaries} - set(left_out)), left_out


def _tables_below(directory: Path) -> list[Path]:
    """The CSV files below a directory, sorted; packed ones only where nothing is unpacked beside.

    Raises:
        OSError: a directory cannot be looked into.
    """

    def stop(error: OSError) -> None:
        raise error

    folders = os.walk(directory, onerror=stop)
    found = (Path(folder, name) for folder, _, names in folders for name in names if _TABLE.search(name))
    tables = {file for file in found if file.is_file()}
    return sorted(file for file in tables if not (_is_packed(file.name) and file.with_suffix("") in tables))


def _is_packed(name: str) -> bool:
    return not name.lower().endswith(".csv")
