"""Requests that wait for an end: by a parameter, or by what the caller prefers (RFC 7240)."""

import re

import msgspec

from holdfast.http.fields import LONGEST_WAIT, Wait
from holdfast.http.routing import Ask

__all__ = ["PREFER", "Waiting", "patience"]

_WAIT = re.compile(r"(?:^|[,;\s])wait=(\d{1,6})\b")
PREFER = {"Prefer": "`wait=30` waits so many seconds for its end."}


class Waiting(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    wait: Wait = 0.0


def patience(ask: Ask) -> tuple[float, dict[str, str]]:
    """Seconds, and the header that says that they were heard."""
    found = _WAIT.search(ask.header("prefer") or "")
    if ask.query.wait or found is None:
        return ask.query.wait, {}
    seconds = min(int(found[1]), int(LONGEST_WAIT))
    return float(seconds), {"Preference-Applied": f"wait={seconds}"}
