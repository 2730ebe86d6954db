"""Commands on a terminal of their own."""

import fcntl
import os
import pty
import re
import select
import subprocess
import sys
import termios
import time

from tests.cli.shell import WITHIN, Shell, can_be_interrupted


def on_a_terminal(
    shell: Shell, *args: str, keys: bytes = b"", after: bytes = b"", columns: int = 160
) -> tuple[int, str]:
    """Its exit code, and all that was seen. `keys` are pressed when `after` was seen, and again as
    long as nothing comes of it: a prompt that is about to read may miss a signal."""
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
        preexec_fn=_at_the_terminal,
    ) as process:
        os.close(theirs)
        seen, pressed = b"", False
        while part := _read(ours, process, keys if pressed else b""):
            seen += part
            if keys and after in seen and not pressed:
                os.write(ours, keys)
                pressed = True
        os.close(ours)
        return process.wait(WITHIN), seen.decode()


def _at_the_terminal() -> None:
    """So that Ctrl-C is a signal."""
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    can_be_interrupted()


def lines_of(seen: str) -> list[str]:
    """What stands on the screen, without its colours and blank ends."""
    return [re.sub(r"\x1b\[[\d;?]*\w", "", line).rstrip() for line in seen.splitlines()]


def _read(ours: int, process: "subprocess.Popen[bytes]", keys: bytes) -> bytes:
    over = time.monotonic() + WITHIN
    while not select.select([ours], [], [], 2 if keys else WITHIN)[0]:
        if time.monotonic() > over:
            process.kill()
            break
        os.write(ours, keys)
    try:
        return os.read(ours, 65536)
    except OSError:  # so does Linux say that the other end is closed
        return b""
