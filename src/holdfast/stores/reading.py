"""Queries of people's own: which of them only read, by their first word."""

import re

from holdfast.errors import ReadOnly

__all__ = ["check_reads"]

_READS = re.compile(
    r"(?:\s|--[^\n]*(?:\n|$)|(?>/\*.*?\*/))*+(select|with|values|explain)\b",
    re.IGNORECASE | re.DOTALL,
)


def check_reads(sql: str) -> None:
    """The database itself sees to the rest."""
    if not _READS.match(sql):
        raise ReadOnly
