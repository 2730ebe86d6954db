"""Commands on a terminal of their own."""

import os
import pty
import subprocess
import sys

from tests.cli.shell import WITHIN, Shell


def on_a_terminal(
    shell: Shell, *args: str, keys: bytes = b"", after: bytes = b""
) -> tuple[int, str]:
    """Its exit code, and all that was seen. `keys` are pressed once `after` was seen."""
    ours, theirs = pty.openpty()
    environ = shell.environ | {"TERM": "xterm", "COLUMNS": "160", "LINES": "60", "NO_COLOR": "1"}
    with subprocess.Popen(
        [sys.executable, "-m", "holdfast", *args],
        cwd=shell.folder,
        env=environ,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
    ) as process:
        os.close(theirs)
        seen = b""
        while part := _read(ours):
            seen += part
            if keys and after in seen:
                os.write(ours, keys)
                keys = b""
        os.close(ours)
        return process.wait(WITHIN), seen.decode()


def _read(ours: int) -> bytes:
    try:
        return os.read(ours, 65536)
    except OSError:  # so does Linux say that the other end is closed
        return b""
