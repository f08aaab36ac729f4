"""What importing the core costs: the standard library and NumPy, nothing else."""

from __future__ import annotations

import subprocess
import sys

HEAVY = ("rich", "polars", "huggingface_hub", "torch", "yaml", "msgspec", "matplotlib", "jinja2", "filelock")


def test_importing_the_core_loads_no_library_but_numpy() -> None:
    code = (
        "import sys, tensor_cast, tensor_cast.simulator, tensor_cast.models.families\n"
        f"print([name for name in {HEAVY!r} if name in sys.modules])"
    )
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert loaded.strip() == "[]"
