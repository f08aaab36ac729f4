"""Where databases lie, and how a software stack's versions name a directory."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from tensor_cast.errors import ModelingError
from tensor_cast.performance_model.profiling_database.versions import detected_versions

DEFAULT_DEVICE = "ATLAS_800_A3_752T_128G_DIE"
DEVICES = (
    "ATLAS_800_A2_376T_64G",
    "ATLAS_800_A2_313T_64G",
    "ATLAS_800_A2_280T_64G",
    "ATLAS_800_A2_280T_64G_PCIE",
    "ATLAS_800_A2_280T_32G_PCIE",
    DEFAULT_DEVICE,
    "ATLAS_800_A3_560T_128G_DIE",
)
"""Devices that the measuring tools accept; another one is measured with an explicit database path."""

DATA_DIRECTORY = Path(__file__).parent / "data"
"""The databases that come with the package, laid out as ``{device}/vllm_ascend/{version}``."""

_VERSION = re.compile(r"[A-Za-z0-9]+(?:[._+-][A-Za-z0-9]+)*")
_WHOLE_VERSION = re.compile(r"vllm(?P<vllm>.+?)_torch(?P<torch>.+?)_cann(?P<cann>.+)", re.IGNORECASE)
_OPTIONS = {"vLLM-Ascend": "--vllm-version", "PyTorch": "--torch-version", "CANN": "--cann-version"}


def version_text(text: str) -> str:
    """A version argument without surrounding blanks.

    Raises:
        ValueError: it could not be part of a directory's name.
    """
    version = text.strip()
    if not _VERSION.fullmatch(version):
        raise ValueError(f"{text!r} is not a version: use letters and digits joined by . _ + or -")
    return version


def database_directory(
    device: str,
    vllm_version: str | None = None,
    torch_version: str | None = None,
    cann_version: str | None = None,
    *,
    data_directory: Path = DATA_DIRECTORY,
) -> Path:
    """The directory of a device and software stack; parts that are not given are detected on this machine.

    A lone ``vllm_version`` that spells the whole stack (``vllm0.15.0_torch2.9.0_cann8.5``) is the directory's name.

    Raises:
        ModelingError: a part is neither given nor found, or given twice.
    """
    root = data_directory / device / "vllm_ascend"
    if vllm_version and _WHOLE_VERSION.fullmatch(vllm_version):
        if torch_version or cann_version:
            raise ModelingError(
                f"--vllm-version {vllm_version} names the whole stack: leave out --torch-version and --cann-version, "
                "or give the version of vLLM-Ascend alone."
            )
        return root / vllm_version
    given = {"vLLM-Ascend": vllm_version, "PyTorch": torch_version, "CANN": cann_version}
    found = {**detected_versions([part for part, version in given.items() if not version])}
    versions = {part: version or found.get(part) for part, version in given.items()}
    undetected = [part for part, version in versions.items() if not version]
    if undetected:
        raise ModelingError(
            f"The version of {' and '.join(undetected)} was not found on this machine: give "
            f"{' and '.join(_OPTIONS[part] for part in undetected)}, or the directory itself with --database-path."
        )
    vllm, torch, cann = (str(version) for version in versions.values())
    return root / (
        f"vllm{_bare(vllm, 'vllm').removeprefix('v')}_torch{_bare(torch, 'torch').split('+')[0]}"
        f"_cann{_bare(cann, 'cann')}"
    )


def newest(directories: Iterable[Path]) -> Path | None:
    """The directory whose name has the highest version numbers, 0.15 being above 0.9; ``None`` of none."""
    return max(directories, key=lambda path: [int(number) for number in re.findall(r"\d+", path.name)], default=None)


def communication_directories(database: Path) -> list[Path]:
    """Where collectives measured beside a database may lie, the closest match first.

    ``data/{device}/vllm_ascend/vllm…_cann8.5`` has its collectives in ``data/{device}/hccl/v8.5``; CANN 8.5.0 is
    looked for as 8.5 too, because published directories shorten it.
    """
    whole = _WHOLE_VERSION.fullmatch(database.name)
    if whole is None:
        return []
    cann = whole.group("cann").split("_")[0]
    names = [f"v{cann}", f"v{'.'.join(cann.split('.')[:2])}"]
    candidates = [database.parent.parent / "hccl" / name for name in dict.fromkeys(names)]
    return [candidate for candidate in candidates if candidate.is_dir()]


def _bare(version: str, product: str) -> str:
    return re.sub(rf"^{product}", "", version.strip(), flags=re.IGNORECASE)
