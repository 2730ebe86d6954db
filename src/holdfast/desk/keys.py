"""Keys of the API as text: `hf_<id>_<secret>`. A store keeps the id and a digest, never the secret.

The secret is 256 bits made by chance, so a plain digest is enough: there is nothing to guess.
"""

import re
import secrets
from hashlib import sha256
from typing import NamedTuple

__all__ = ["NewKey", "digest_of", "id_of", "new_key"]

_KEY = re.compile(r"hf_([0-9a-f]{12})_[0-9a-f]{64}")


class NewKey(NamedTuple):
    """`text` is shown once, to whoever is to have it."""

    id: str
    text: str

    @property
    def digest(self) -> bytes:
        return digest_of(self.text)

    def __repr__(self) -> str:
        return f"<key {self.id}>"


def new_key() -> NewKey:
    id = secrets.token_hex(6)
    return NewKey(id, f"hf_{id}_{secrets.token_hex(32)}")


def id_of(text: str) -> str | None:
    """Which key it claims to be; None: it is no key of ours. Compare its digest then, by
    `hmac.compare_digest`."""
    found = _KEY.fullmatch(text)
    return found[1] if found else None


def digest_of(text: str) -> bytes:
    return sha256(text.encode()).digest()
