"""Keys of the API: `hf_<id>_<secret>`. The id names the key, the secret proves it."""

import hmac
import re
from hashlib import sha256

from holdfast.ids import random_text

__all__ = ["Secret", "is_key", "make", "read"]

_FORM = re.compile(r"hf_([A-Za-z0-9]{8})_([A-Za-z0-9]{32})")


class Secret:
    """What was read of a key that somebody shows."""

    __slots__ = ("_digest", "id")

    def __init__(self, id: str, secret: str) -> None:
        self.id, self._digest = id, _digest_of(secret)

    def proves(self, digest: bytes) -> bool:
        return hmac.compare_digest(self._digest, digest)


def make() -> tuple[str, str, bytes]:
    """A new key: its id, the key as its owner will show it, and what is stored of it."""
    id, secret = random_text(8), random_text(32)
    return id, f"hf_{id}_{secret}", _digest_of(secret)


def read(key: str) -> Secret | None:
    """None: it is none of ours, whoever shows it."""
    found = _FORM.fullmatch(key)
    return Secret(*found.groups()) if found else None


def is_key(text: str) -> bool:
    return _FORM.search(text) is not None


def _digest_of(secret: str) -> bytes:
    return sha256(secret.encode()).digest()
