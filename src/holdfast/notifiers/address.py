"""Where a URL leads, for people to read: never a user or a password."""

from urllib.parse import urlsplit

from holdfast.errors import InvalidInput

__all__ = ["where"]


def where(url: str, *schemes: str) -> str:
    """Hosts and ports. A URL that might be split inside its password is refused, unquoted."""
    try:
        parts = urlsplit(url)
        if "," not in parts.netloc:
            _ = parts.port  # refused where it is no number
    except ValueError:
        raise _malformed(schemes) from None
    login, _, hosts = parts.netloc.rpartition("@")
    if parts.scheme not in schemes or "#" in url or "@" in login + parts.path:
        raise _malformed(schemes)
    return hosts or parts.path or "localhost"


def _malformed(schemes: tuple[str, ...]) -> InvalidInput:
    return InvalidInput(
        f"the URL for hints is malformed; write {schemes[0]}://user:password@host:port/name, and "
        "percent-encode # / ? @ : in the password (# is %23)"
    )
