"""Lines of the code that runs: read once, so that a deploy may replace the files under it."""

import linecache

__all__ = ["line_of", "remember"]

_files: dict[str, list[str]] = {}


def remember(filename: str) -> list[str]:
    """As it is now; best while it is imported."""
    lines = _files.get(filename)
    if lines is None:
        lines = _files[filename] = linecache.getlines(filename)
    return lines


def line_of(filename: str, number: int) -> str:
    """Its words; empty where there is no such file."""
    lines = remember(filename)
    return " ".join(lines[number - 1].split()) if number <= len(lines) else ""
