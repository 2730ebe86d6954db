"""Ids that are made by the caller, so that asking twice is harmless."""

import os
import random
import secrets
import string
import threading
import time
from hashlib import blake2b
from uuid import UUID, uuid4

__all__ = [
    "chance",
    "derived_id",
    "new_grant",
    "new_id",
    "new_uuid",
    "new_worker_id",
    "random_bytes",
    "random_text",
]

_lock = threading.Lock()
_last = 0


def new_id() -> UUID:
    """A UUIDv7: ascending within this process, also many in one millisecond."""
    global _last
    milliseconds, rest = divmod(time.time_ns(), 1_000_000)
    stamp = milliseconds << 12 | rest * 4096 // 1_000_000
    with _lock:
        if stamp <= _last:
            stamp = _last + 1
        _last = stamp
    chance = int.from_bytes(os.urandom(8)) & 0x3FFF_FFFF_FFFF_FFFF
    return UUID(int=(stamp >> 12) << 80 | 0x7000 << 64 | (stamp & 0xFFF) << 64 | 2 << 62 | chance)


def derived_id(of: UUID, *parts: object) -> UUID:
    """A UUIDv8 that begins as another id does: whoever names the same parts gets the same one. It
    does not say when it was made."""
    said = "\0".join(map(str, parts)).encode()
    found = int.from_bytes(blake2b(said, digest_size=10, key=of.bytes).digest())
    high, low = (found >> 62) & 0xFFF, found & 0x3FFF_FFFF_FFFF_FFFF
    return UUID(int=(of.int >> 80) << 80 | 0x8000 << 64 | high << 64 | 2 << 62 | low)


def new_grant() -> UUID:
    """The id of one claim call: pure chance, so that no failover can issue it again."""
    return UUID(bytes=os.urandom(16))


def new_worker_id() -> int:
    """The id of one start of a worker: two containers with pid 1 never share one."""
    return int.from_bytes(os.urandom(8)) >> 1


def new_uuid() -> UUID:
    """A random UUID, for people's own use."""
    return uuid4()


def chance() -> float:
    """From 0 to 1."""
    return random.random()


def random_bytes(count: int) -> bytes:
    """For keys."""
    return os.urandom(count)


def random_text(length: int) -> str:
    """Letters and digits that nobody can guess."""
    letters = string.ascii_letters + string.digits
    return "".join(secrets.choice(letters) for _ in range(length))
