"""How the command line ends: its exit codes, and which error has which."""

from enum import IntEnum

import click

from holdfast import errors
from holdfast.cli.cells import safe

__all__ = ["Exit", "Stop", "explained"]


class Exit(IntEnum):
    """Documented in docs/reference/cli.md, and never changed."""

    OK = 0
    FAILED = 1
    USAGE = 2
    NOT_FOUND = 3
    UNREACHABLE = 4
    CONFLICT = 5
    REFUSED = 6
    TIMED_OUT = 7
    TASK_FAILED = 8
    UNHEALTHY = 9
    NO_APP = 10
    INTERRUPTED = 130  # as shells count Ctrl-C


class Stop(click.ClickException):
    """An end that was foreseen: a message that says what to do, and a code."""

    def __init__(self, code: Exit, message: str) -> None:
        super().__init__(safe(message, keep="\n"))
        self.exit_code = int(code)  # type: ignore[misc] # click reads it of the instance


def explained(error: errors.HoldfastError) -> Stop:
    """What the library raised, as an end of the command."""
    match error:
        case errors.KeyConflict() | errors.NotPossible():
            code = Exit.CONFLICT
        case errors.ReadOnly() | errors.Refused():
            code = Exit.REFUSED
        case errors.InvalidInput():
            code = Exit.USAGE
        case LookupError():  # whatever is unknown
            code = Exit.NOT_FOUND
        case errors.StoreUnreachable() | errors.NotAStore():
            code = Exit.UNREACHABLE
        case errors.TaskFailed() | errors.TaskCancelled():
            code = Exit.TASK_FAILED
        case _:
            code = Exit.FAILED
    return Stop(code, str(error))
