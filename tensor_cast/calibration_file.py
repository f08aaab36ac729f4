"""A calibrated profile as a device file of its own, which loads before it is handed out."""

from __future__ import annotations

import json
import re
import tempfile
from dataclasses import replace
from pathlib import Path

from tensor_cast.devices.figures import as_document
from tensor_cast.devices.loader import CUSTOM_FAMILY, PROFILES
from tensor_cast.devices.profile import DeviceProfile
from tensor_cast.devices.registry import load_device_file
from tensor_cast.errors import ModelingError
from tensor_cast.reporting.output_file import check_writable


def check_request(name: str, path: Path) -> None:
    """Refuse before anything is fitted what could not be written afterwards.

    Raises:
        ModelingError: the name is none, or the file is there already, among the packaged ones, or in no directory.
    """
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]*", name):
        raise ModelingError(f"{name!r} is no device name; use letters, digits, _ and -.")
    check_writable(path, "--output")
    if path.resolve().parent == PROFILES.resolve():
        raise ModelingError(f"--output {path} lies among the packaged profiles; give a file elsewhere.")
    if path.exists():
        raise ModelingError(f"{path} is there already; give another --output.")


def device_text(profile: DeviceProfile) -> str:
    """The YAML that loads as ``profile``, every figure written out with its source.

    Raises:
        ModelingError: a figure is out of the range that a device file may have.
    """
    import yaml

    packaged = {path.stem for path in PROFILES.glob("*.yaml")}
    if profile.family not in packaged:
        profile = replace(profile, family=CUSTOM_FAMILY)
    # Through JSON: tuples become lists, and no two values are one object, which YAML would write as an anchor.
    document = json.loads(json.dumps(as_document(profile), allow_nan=False))
    text: str = yaml.safe_dump(document, sort_keys=False, allow_unicode=True, width=118)
    with tempfile.TemporaryDirectory(prefix="msmodeling-") as scratch:
        draft = Path(scratch, f"{profile.name}.yaml")
        draft.write_text(text, encoding="utf-8")
        try:
            load_device_file(draft)
        except ModelingError as error:
            raise ModelingError(re.sub(rf"^{re.escape(str(draft))}(:\d+)?: ", "", str(error))) from None
    return text
