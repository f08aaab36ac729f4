"""How every measuring tool ends: with a sentence and an exit status, never with a traceback."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

from tensor_cast.errors import ModelingError

EXIT_INTERRUPTED = 130
"""128 + SIGINT."""
_EXIT_BROKEN_PIPE = 141
"""128 + SIGPIPE."""


def exit_status(run: Callable[[], int | None], *, interrupted: str = "Interrupted.") -> int:
    """Run a command and say how it ended.

    Args:
        run: the command; gives its exit status, nothing for 0.
        interrupted: what Ctrl-C is answered with.
    """
    try:
        status = run() or 0
        sys.stdout.flush()
    except ModelingError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_status
    except KeyboardInterrupt:
        print(interrupted, file=sys.stderr)
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        # The reader is gone (`| head`): the flush at exit must not fail again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _EXIT_BROKEN_PIPE
    return status
