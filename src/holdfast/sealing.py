"""Payloads that only their owners can read: AES-256-GCM under a ring of keys.

What is sealed stays JSON: a text that names its key. It is bound to its task and its place, so
that it cannot be moved elsewhere. Equal values in the same place are sealed alike (the nonce is
made of the value, under the key), since whoever asks again after a lost answer must be known again.
"""

import base64
import binascii
import hmac
import re
from collections.abc import Mapping
from hashlib import sha256
from typing import Any
from uuid import UUID

from holdfast.errors import InvalidInput, Sealed
from holdfast.ids import random_bytes

__all__ = ["KeyRing", "is_sealed"]

_MARK = b'"hf:sealed:1:'
_NAME = re.compile(r"[A-Za-z0-9_-]{1,40}")
_NONCE = 12


class KeyRing:
    """Keys by name. The first seals; all of them open, so that keys can be replaced one by one:
    put the new one in front, and take the old one out once nothing is left that it sealed."""

    def __init__(self, keys: Mapping[str, bytes]) -> None:
        if not keys:
            raise InvalidInput("a key ring needs a key: name:base64 of 32 random bytes")
        for number, (name, key) in enumerate(keys.items(), start=1):
            if not _NAME.fullmatch(name):  # not repeated: it may be the key itself, misplaced
                raise InvalidInput(f"key {number} must be named by letters, digits, _ and -")
            if len(key) != 32:
                raise InvalidInput(f"key {name!r} must have 32 bytes, it has {len(key)}")
        self._keys = {name: _Key(key) for name, key in keys.items()}
        self._first = next(iter(keys))

    def __repr__(self) -> str:
        return f"<KeyRing {', '.join(self._keys)}>"  # names, never keys

    @classmethod
    def parse(cls, text: str) -> "KeyRing":
        """`name:base64,older:base64`, as the environment has it."""
        keys: dict[str, bytes] = {}
        parts = filter(None, (part.strip() for part in text.split(",")))
        for number, part in enumerate(parts, start=1):
            name, colon, key = part.partition(":")
            try:
                keys[name] = base64.b64decode(key, validate=True)
            except binascii.Error:
                colon = ""
            if not colon:
                raise InvalidInput(
                    f"key {number} is not name:base64; a key is the base64 of 32 random bytes"
                )
        return cls(keys)

    @staticmethod
    def make() -> str:
        """A new key as text, for `parse` under a name of yours."""
        return base64.b64encode(random_bytes(32)).decode()

    def seal(self, data: bytes, task: UUID, place: str) -> bytes:
        """For this place of this task."""
        sealed = self._keys[self._first].seal(data, _bound(task, place))
        text = base64.b64encode(sealed)
        return _MARK + self._first.encode() + b":" + text + b'"'

    def open(self, data: bytes, task: UUID, place: str) -> bytes:
        """What was never sealed is as it is. Raises `Sealed` where it cannot be opened."""
        if not is_sealed(data):
            return data
        name, _, text = data[len(_MARK) : -1].partition(b":")
        key = self._keys.get(name.decode("ascii", "replace"))
        if key is None:
            raise Sealed(f"it was sealed with key {name!r:.50}, which is not in the ring")
        try:
            return key.open(base64.b64decode(text, validate=True), _bound(task, place))
        except (binascii.Error, ValueError):
            raise Sealed("it does not belong here, or was altered") from None

    def fingerprint(self, plain: bytes) -> bytes:
        """Equal work has equal ones, whatever seals it; they tell nothing of the data."""
        return list(self._keys.values())[-1].mark(plain)[:16]


class _Key:
    def __init__(self, key: bytes) -> None:
        try:
            from cryptography.hazmat.primitives.ciphers.aead import AESGCM
        except ImportError:
            raise InvalidInput("sealing needs pip install 'holdfast[crypto]'") from None

        self._cipher: Any = AESGCM(hmac.digest(key, b"seal", sha256))
        self._nonces = hmac.digest(key, b"nonce", sha256)
        self._marks = hmac.digest(key, b"mark", sha256)

    def seal(self, data: bytes, bound: bytes) -> bytes:
        nonce = hmac.digest(self._nonces, bound + b"\0" + data, sha256)[:_NONCE]
        sealed: bytes = self._cipher.encrypt(nonce, data, bound)
        return nonce + sealed

    def open(self, sealed: bytes, bound: bytes) -> bytes:
        from cryptography.exceptions import InvalidTag

        try:
            data: bytes = self._cipher.decrypt(sealed[:_NONCE], sealed[_NONCE:], bound)
        except InvalidTag:
            raise ValueError("altered") from None
        return data

    def mark(self, data: bytes) -> bytes:
        return hmac.digest(self._marks, data, sha256)


def is_sealed(data: bytes) -> bool:
    return data.startswith(_MARK)


def _bound(task: UUID, place: str) -> bytes:
    return task.bytes + b"\0" + place.encode()
