"""Commands on a terminal of their own."""

import fcntl
import os
import pty
import re
import select
import subprocess
import sys
import termios

from tests.cli.shell import WITHIN, Shell


def on_a_terminal(
    shell: Shell, *args: str, keys: bytes = b"", after: bytes = b"", columns: int = 160
) -> tuple[int, str]:
    """Its exit code, and all that was seen. `keys` are pressed once `after` was seen."""
    ours, theirs = pty.openpty()
    size = {"COLUMNS": str(columns), "LINES": "60"}
    environ = shell.environ | {"TERM": "xterm", "NO_COLOR": "1"} | size
    with subprocess.Popen(
        [sys.executable, "-m", "holdfast", *args],
        cwd=shell.folder,
        env=environ,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),  # so that Ctrl-C is a signal
    ) as process:
        os.close(theirs)
        seen = b""
        while part := _read(ours, process):
            seen += part
            if keys and after in seen:
                os.write(ours, keys)
                keys = b""
        os.close(ours)
        return process.wait(WITHIN), seen.decode()


def lines_of(seen: str) -> list[str]:
    """What stands on the screen, without its colours and blank ends."""
    return [re.sub(r"\x1b\[[\d;?]*\w", "", line).rstrip() for line in seen.splitlines()]


def _read(ours: int, process: "subprocess.Popen[bytes]") -> bytes:
    if not select.select([ours], [], [], WITHIN)[0]:
        process.kill()
    try:
        return os.read(ours, 65536)
    except OSError:  # so does Linux say that the other end is closed
        return b""
