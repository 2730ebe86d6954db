"""A command on a leash: `python -m holdfast.cli.leash worker …` ends when its stdin does, so that
whoever started it takes it along, however they end."""

import os
import signal
import sys
import threading

from holdfast.cli.main import main

__all__: list[str] = []


def _until_let_go(stdin: int) -> None:
    while os.read(stdin, 1024):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    threading.Thread(target=_until_let_go, args=(sys.stdin.fileno(),), daemon=True).start()
    main(prog_name="holdfast")
