"""Who may come in. Closed by default: without keys only this machine is answered."""

import hmac
import ipaddress
from collections.abc import Sequence
from hashlib import sha256
from typing import Protocol
from urllib.parse import urlsplit

from starlette.requests import Request

from holdfast.desk.caller import Caller
from holdfast.http.problems import Problem
from holdfast.http.rates import Buckets
from holdfast.http.routing import PUBLIC

__all__ = ["BootstrapKey", "Door", "Keys", "is_loopback", "unauthorized"]

_HOSTS = {"localhost", "127.0.0.1", "::1"}
_PASSED_ON = ("forwarded", "via", "x-forwarded-for", "x-forwarded-host", "x-real-ip")
LOCAL = Caller(name="local")
_NETWORK = 64  # bits
ANYBODY = Caller(name="anybody", scopes=frozenset())


class Keys(Protocol):
    """Where keys are kept. Nothing of a key is ever shown or logged."""

    async def caller(self, key: str, *, sparing: bool = False) -> Caller | None:
        """Whose key it is; None: nobody's, or no longer. Compares in constant time. `sparing`:
        without asking the store for this one, since somebody tries keys."""
        ...

    async def any(self) -> bool:
        """Whether there are keys: without any, only this machine is answered."""
        ...


class BootstrapKey:
    """The key of the environment (HOLDFAST_API_KEY): everything, for all tenants."""

    def __init__(self, key: str | None) -> None:
        self._digest = sha256(key.encode()).digest() if key else None

    async def caller(self, key: str, *, sparing: bool = False) -> Caller | None:
        digest = sha256(key.encode()).digest()
        if self._digest and hmac.compare_digest(digest, self._digest):
            return Caller(name="bootstrap")
        return None

    async def any(self) -> bool:
        return self._digest is not None


class Door:
    """Lets in whoever shows a key with the right scope."""

    def __init__(self, keys: Sequence[Keys], requests: Buckets, failures: Buckets) -> None:
        self._keys, self._requests, self._failures = keys, requests, failures

    async def locked(self) -> bool:
        """Whether there is any key to it."""
        for keys in self._keys:
            if await keys.any():
                return True
        return False

    async def admit(self, request: Request, scope: str) -> Caller:
        if scope == PUBLIC:
            return ANYBODY
        if not await self.locked():
            _check_local(request)
            return LOCAL
        caller = await self._known(request)
        self._requests.take(caller.name)
        if not caller.may(scope):
            raise Problem(403, "forbidden", f"this key lacks the scope {scope!r}")
        return caller

    async def still_admits(self, request: Request, caller: Caller, scope: str) -> bool:
        """Whether whoever was let in a while ago would be let in now, as the same."""
        if caller == LOCAL:
            return not await self.locked()
        found = await self._owner(_shown(request), sparing=False)
        return found is not None and found == caller and found.may(scope)

    async def _known(self, request: Request) -> Caller:
        """Each key costs its address a token, before anything is looked up for it; a good one gives
        it back. Where none are left the store is not asked for single keys any more: all that it
        keeps are remembered for a moment, so that wrong keys cost it next to nothing, and good ones
        of the same address (a proxy has but one) still come in."""
        address = _address(request)
        paid = self._failures.has_given(address)
        caller = await self._owner(_shown(request), sparing=not paid)
        if caller and paid:
            self._failures.take_back(address)
        if caller:
            return caller
        if not paid:
            raise self._failures.too_many(address)
        raise unauthorized()

    async def _owner(self, key: str | None, *, sparing: bool) -> Caller | None:
        if key is not None:
            for keys in self._keys:
                if caller := await keys.caller(key, sparing=sparing):
                    return caller
        return None


def unauthorized() -> Problem:
    return Problem(
        401,
        "unauthorized",
        "send a key that is known here: Authorization: Bearer …",
        headers={"WWW-Authenticate": "Bearer"},
    )


def _shown(request: Request) -> str | None:
    scheme, _, key = request.headers.get("authorization", "").partition(" ")
    key = key.strip()
    return key if scheme.lower() == "bearer" and 0 < len(key) <= 500 else None


def _address(request: Request) -> str:
    """Whose tries are counted together: of IPv6 one network, since it has addresses without end."""
    host = request.client.host if request.client else ""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host
    if isinstance(address, ipaddress.IPv4Address) or address.ipv4_mapped:
        return host
    return str(ipaddress.ip_network((address.packed, _NETWORK), strict=False))


def _check_local(request: Request) -> None:
    """From this machine, to this machine by its own name: a page in a browser that was led here
    under another name, or by another site, is no neighbour."""
    client = request.client
    if client is None or not is_loopback(client.host):
        raise _closed()
    if _name(f"//{request.headers.get('host', '')}") not in _HOSTS:
        raise _closed()
    if any(name in request.headers for name in _PASSED_ON):
        raise _closed()  # a proxy of this machine speaks for anybody
    origin = request.headers.get("origin")
    if origin is not None and _name(origin) not in _HOSTS:
        raise _closed()
    if request.headers.get("sec-fetch-site") in ("cross-site", "same-site"):
        raise _closed()


def _closed() -> Problem:
    return Problem(
        403,
        "closed",
        "without keys only this machine is answered, as localhost; set HOLDFAST_API_KEY to let "
        "others in",
    )


def _name(url: str) -> str | None:
    try:
        return urlsplit(url).hostname
    except ValueError:
        return None


def is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return (mapped or address).is_loopback
