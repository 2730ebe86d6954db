"""Limits per key: what waits behind its key is let into its lane when the key has room."""

from collections import Counter
from math import ceil

from holdfast.stores.sqlite.session import Rows, Session

__all__ = ["admit", "keys_left"]

_ONE_PASS = 1000  # tasks of one key; more come with the next nudge


def admit(s: Session, lanes: list[int], batch: int) -> None:
    """Looks only at keys that were nudged: by an arrival, or by a settle that made room."""
    for pool, key in dict.fromkeys(_nudged(s, lanes, batch)):
        s.run("key_gate.add", pool=pool, key=key)
        s.run("key_gate.fold", pool=pool, key=key)
        s.run("nudge.folded", pool=pool, key=key)
        admitted = _let_in(s, pool, key, s.value("key_gate.room", pool=pool, key=key))
        s.run("key_gate.count", pool=pool, key=key, n=admitted)
        if admitted >= _ONE_PASS:
            s.run("nudge.add", pool=pool, key=key, freed=0)
        s.run("key_gate.forget", pool=pool, key=key)


def keys_left(s: Session, lanes: list[int]) -> bool:
    """Whether keys of these lanes were nudged and not looked at yet."""
    return bool(s.rows("nudge.pools", lanes=lanes))


def _nudged(s: Session, lanes: list[int], batch: int) -> Rows:
    """Nudges of these lanes, an equal share of each pool: who serves one function does not wait
    for all keys of another. What some pools do not need goes to those that have more."""
    pools = [pool for (pool,) in s.rows("nudge.pools", lanes=lanes)]
    share = ceil(batch / max(len(pools), 1))
    keys = s.each("nudge.keys", pool=pools, batch=share)
    sizes = Counter(pool for pool, _ in keys)
    deep = [pool for pool in pools if sizes[pool] == share]
    if not deep or len(keys) >= batch:
        return keys
    more = share + ceil((batch - len(keys)) / len(deep))
    shallow = [row for row in keys if sizes[row[0]] < share]
    return shallow + s.each("nudge.keys", pool=deep, batch=more)


def _let_in(s: Session, pool: int, key: str, room: int) -> int:
    if room <= 0:
        return 0
    last = s.row("blocked.heads", pool=pool, key=key, skip=room - 1)
    np, seq = last or (2**31, 2**62)
    admitted = s.run("blocked.admit", pool=pool, key=key, np=np, seq=seq)
    if admitted:
        s.run("blocked.leave", pool=pool, key=key, np=np, seq=seq)
    return admitted
