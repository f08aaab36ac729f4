"""Finding the versions of vLLM-Ascend, PyTorch and CANN on this machine without starting any of them if avoidable."""

from __future__ import annotations

import importlib
import os
import re
from collections.abc import Iterable, Mapping
from importlib import metadata
from pathlib import Path

CANN_HOME_VARIABLES = ("ASCEND_HOME_PATH", "ASCEND_TOOLKIT_HOME", "ASCEND_TOOLKIT_HOME_PATH", "ASCEND_INSTALL_PATH")
"""Environment variables that name a CANN installation, in the order they are tried."""

_USUAL_HOMES = (
    "~/Ascend/cann",
    "/usr/local/Ascend/ascend-toolkit/latest",
    "/usr/local/Ascend/ascend-toolkit",
    "/usr/local/Ascend/cann",
    "/usr/local/Ascend/latest",
    "/usr/local/Ascend",
)
_BELOW_HOME = (
    "",
    "latest",
    "ascend-toolkit",
    "ascend-toolkit/latest",
    "arm64-linux",
    "aarch64-linux",
    "x86_64-linux",
)
_VERSION_FILES = ("ascend_toolkit_install.info", "version.info")
_VERSION_LINE = re.compile(
    r"""^\s*(?:package_)?version\s*[=:][\s\["']*([a-z0-9]+(?:[._+-][a-z0-9]+)*)""", re.IGNORECASE | re.MULTILINE
)


def detected_versions(parts: Iterable[str], environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Versions found of ``parts``, out of "vLLM-Ascend", "PyTorch" and "CANN"; one that is not found is left out."""
    finders = {
        "vLLM-Ascend": lambda: _package_version(("vllm-ascend", "vllm_ascend"), "vllm_ascend"),
        "PyTorch": lambda: _package_version(("torch",), "torch"),
        "CANN": lambda: _cann_from_torch_npu() or cann_version_on_disk(environment),
    }
    found = {part: finders[part]() for part in parts}
    return {part: version for part, version in found.items() if version}


def cann_version_on_disk(environment: Mapping[str, str], usual_homes: Iterable[str] = _USUAL_HOMES) -> str | None:
    """CANN's version from the files of an installation that the environment names or that lies in a usual place."""
    named = [environment[variable] for variable in CANN_HOME_VARIABLES if environment.get(variable)]
    for home in (*named, *usual_homes):
        for below in _BELOW_HOME:
            for file_name in _VERSION_FILES:
                try:
                    text = (Path(home).expanduser() / below / file_name).read_text(encoding="utf-8", errors="replace")
                except OSError:
                    continue
                if line := _VERSION_LINE.search(text):
                    return line.group(1)
    return None


def _package_version(distributions: Iterable[str], module: str) -> str | None:
    for distribution in distributions:
        try:
            return metadata.version(distribution)
        except metadata.PackageNotFoundError:
            continue
    return _module_attribute(module, "__version__")


def _cann_from_torch_npu() -> str | None:
    return _module_attribute("torch_npu.version", "cann") or _module_attribute("torch_npu.version", "cann_version")


def _module_attribute(module: str, attribute: str) -> str | None:
    try:
        value = getattr(importlib.import_module(module), attribute, None)
    except Exception:  # a broken accelerator stack raises anything on import; it then has no version to tell
        return None
    return str(value) if value else None
