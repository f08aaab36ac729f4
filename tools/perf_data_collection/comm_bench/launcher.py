"""Ending with torchrun, however that ends."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Mapping
from contextlib import suppress

_OF_TORCHRUN = "TORCHELASTIC_RUN_ID"


def end_with_launcher(interval_s: float = 5.0, environment: Mapping[str, str] = os.environ) -> None:
    """End this process once the torchrun that started it is gone.

    One that was killed could not end what it had started, which would measure on beside the next run. A look every few
    seconds does not disturb what is timed. Without torchrun nothing is watched: a parent may end for good reasons.
    """
    if _OF_TORCHRUN not in environment:
        return
    launcher = os.getppid()

    def watch() -> None:
        while os.getppid() == launcher:
            time.sleep(interval_s)
        with suppress(OSError):
            print("error: torchrun was ended, and so is this rank.", file=sys.stderr, flush=True)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
