"""What stdout may be: closed, on a full disk, without letters for all that is said."""

import codecs
import errno
import io
import os
import sys

__all__ = ["forget", "is_full", "prepare"]


def prepare() -> None:
    if sys.stdout is None:  # closed by the caller: `>&-`
        sys.stdout = io.StringIO()
    elif isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="holdfast")


def is_full(error: OSError) -> bool:
    return error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def forget() -> None:
    """Or the interpreter tries to write it once more at the end, and says so at length."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _escaped(error: UnicodeError) -> tuple[str, int]:
    """What there are no letters for, as JSON writes it: so JSON stays JSON."""
    assert isinstance(error, UnicodeEncodeError)
    text = error.object[error.start : error.end]
    units = text.encode("utf-16-be", "surrogatepass")
    pairs = zip(units[::2], units[1::2], strict=True)
    return "".join(f"\\u{high:02x}{low:02x}" for high, low in pairs), error.end


codecs.register_error("holdfast", _escaped)
