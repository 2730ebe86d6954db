"""What is given to strangers to keep and must come back as it was: signed, not secret."""

import base64
import binascii
import hmac
from hashlib import sha256

from holdfast.ids import new_grant

__all__ = ["Signer"]

_SEAL = 16  # bytes


class Signer:
    """Seals bytes under a key and a purpose: what was sealed for one purpose fits no other."""

    def __init__(self, key: str | None = None) -> None:
        """Without a key: one of its own, which other processes and later starts do not know."""
        chance = new_grant().bytes + new_grant().bytes
        self._key = sha256(b"holdfast:" + key.encode()).digest() if key else chance

    def sign(self, purpose: str, data: bytes) -> str:
        sealed = self._seal(purpose, data) + data
        return base64.urlsafe_b64encode(sealed).rstrip(b"=").decode()

    def open(self, purpose: str, text: str) -> bytes | None:
        """None: it is not ours, or not for this."""
        try:
            sealed = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
        except (binascii.Error, ValueError):
            return None
        seal, data = sealed[:_SEAL], sealed[_SEAL:]
        return data if hmac.compare_digest(seal, self._seal(purpose, data)) else None

    def _seal(self, purpose: str, data: bytes) -> bytes:
        return hmac.new(self._key, purpose.encode() + b"\0" + data, sha256).digest()[:_SEAL]
