"""What a URL of PostgreSQL says, and what of it may be shown: never a user or a password; and
hints as NOTIFY takes them."""

import re
from collections.abc import Iterable
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from holdfast.errors import InvalidInput
from holdfast.notifier import EVERYTHING

__all__ = ["check_url", "hint_payload", "where"]

_LONGEST_HINT = 7900  # bytes; pg_notify takes less than 8000
_HOST = re.compile(r"(\[[^\[\]@]+\]|[^\[\]@:]*)(:(\d*))?")


def check_url(url: str) -> SplitResult:
    """The URL's parts. What asyncpg would take for something else is refused, and not quoted: it
    may be half a password."""
    try:
        parts = urlsplit(url)
    except ValueError:
        raise _malformed() from None
    login, _, hosts = parts.netloc.rpartition("@")
    if "#" in url or "@" in login or "@" in parts.path:
        raise _malformed()
    if parts.query and not all("=" in field for field in parts.query.split("&") if field):
        raise _malformed()
    if not login and ":" in hosts and "@" in parts.query:
        raise _malformed()
    for host in hosts.split(","):
        found = _HOST.fullmatch(host)
        if not found or int(found[3] or 5432) not in range(1, 65_536):
            raise _malformed()
    return parts


def where(url: str) -> str:
    """Hosts and database, for people to read."""
    parts = check_url(url)
    hosts = parts.netloc.rpartition("@")[2]
    named = dict(parse_qsl(parts.query))
    hosts = unquote(hosts) or named.get("host", "localhost")
    shown = ",".join(h if re.search(r":\d+$|^/", h) else f"{h}:5432" for h in hosts.split(","))
    return f"{shown}{parts.path}"


def hint_payload(hints: Iterable[str]) -> str:
    """One line for each; where they are too many for one notification, "look everywhere"."""
    lines = "\n".join(dict.fromkeys(hints))
    return lines if len(lines.encode()) <= _LONGEST_HINT else str(EVERYTHING)


def _malformed() -> InvalidInput:
    return InvalidInput(
        "the store's URL is malformed; write postgresql://user:password@host:port/database, or "
        "host:port,host:port for several, and percent-encode # / ? @ : in the password (# is %23)"
    )
