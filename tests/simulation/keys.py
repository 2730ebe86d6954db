"""Idempotency keys as they must be: one task for one (tenant, key) (I6)."""

from collections.abc import Mapping
from typing import Any

from tests.simulation.ledger import Ledger

Late = tuple[bytes, bytes, bool]  # the draft, who holds its key, whether for other work


def take_keys(ledger: Ledger, asked: Mapping[str, Any]) -> tuple[set[bytes], list[Late]]:
    """Who comes in by this call, and who is told that its key is taken."""
    ids = [id.bytes for id in asked["ids"]]
    new, late = set(ids), list[Late]()
    if asked["keys"] is None:
        return new, late
    taken: dict[tuple[str, str], tuple[bytes, bytes, bool]] = {}
    for n, id in enumerate(ids):
        key = asked["keys"][n]
        if key is None:
            continue
        place, mark = (asked["tenants"][n], key), asked["fingerprints"][n]
        pending = bool(asked["lifetimes"] and asked["lifetimes"][n] is not None)
        holder = taken.get(place) or ledger.keys.get(place)
        if holder is None or (place not in taken and _given_up(ledger, holder, ids)):
            ledger.world.sometimes("a key was taken over from an ended task", holder is not None)
            taken[place] = (id, mark, pending)
            continue
        new.discard(id)
        if holder[0] != id:
            late.append((id, holder[0], holder[1] != mark))
    ledger.world.sometimes("a key was taken already", bool(late))
    if any(conflict for *_, conflict in late):
        ledger.world.sometimes("a key belonged to other work")
        return set(), late
    ledger.keys |= taken
    return new, late


def _given_up(ledger: Ledger, holder: tuple[bytes, bytes, bool], ids: list[bytes]) -> bool:
    id, _, while_pending = holder
    return while_pending and id not in ids and not ledger.alive(id)
