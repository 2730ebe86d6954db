"""What is given to strangers to keep and must come back as it was: signed, not secret."""

import base64
import binascii
import hmac
import logging
from hashlib import sha256

from holdfast.ids import new_grant

__all__ = ["ELSEWHERE", "Signer"]

logger = logging.getLogger("holdfast.http")
ELSEWHERE = (
    "another process signed it, or this one before it was started anew; those that serve one "
    "address need the same HOLDFAST_SIGNING_KEY"
)
_MARK = b"hf1"  # what we seal begins so; what does not was made by nobody of ours
_NAME, _SEAL = len(_MARK) + 4, 16  # bytes


class Signer:
    """Seals bytes under a key and a purpose: what was sealed for one purpose fits no other."""

    def __init__(self, key: str | None = None) -> None:
        """Without a key: one of its own, which other processes and later starts do not know."""
        chance = new_grant().bytes + new_grant().bytes
        self._key = sha256(b"holdfast:" + key.encode()).digest() if key else chance
        self._name = (_MARK + hmac.new(self._key, b"name", sha256).digest())[:_NAME]
        self._has_told = False

    def sign(self, purpose: str, data: bytes) -> str:
        sealed = self._name + self._seal(purpose, data) + data
        return base64.urlsafe_b64encode(sealed).rstrip(b"=").decode()

    def open(self, purpose: str, text: str) -> bytes | None:
        """None: it is not ours, or not for this."""
        sealed = _bytes_of(text)
        seal, data = sealed[_NAME : _NAME + _SEAL], sealed[_NAME + _SEAL :]
        return data if hmac.compare_digest(seal, self._seal(purpose, data)) else None

    def is_foreign(self, text: str) -> bool:
        """Whether what did not open looks as if another process had sealed it. Told in the log
        once, since only whoever runs them can change that."""
        sealed = _bytes_of(text)
        found = sealed.startswith(_MARK) and sealed[:_NAME] != self._name
        if found and not self._has_told:
            self._has_told = True
            logger.warning(
                "a cursor or a token came back that this process has not signed: if several "
                "processes serve one address, or this one was started anew, set the same "
                "HOLDFAST_SIGNING_KEY (or HOLDFAST_SIGNING_KEY_FILE) for all of them"
            )
        return found

    def _seal(self, purpose: str, data: bytes) -> bytes:
        return hmac.new(self._key, purpose.encode() + b"\0" + data, sha256).digest()[:_SEAL]


def _bytes_of(text: str) -> bytes:
    try:
        return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        return b""
