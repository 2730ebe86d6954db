"""Faults planted in the statements of the store: the simulation must find each of them."""

from collections.abc import Iterator
from contextlib import contextmanager

from holdfast.stores import queries
from holdfast.stores.sqlite.session import STATEMENTS

Change = tuple[str, str, str]  # statement, what it says, what it is made to say

GUARD = ("l.grant_id = unhex(substr(a.value, 33, 32))", "length(a.value) > 0")
FAULTS: dict[str, list[Change]] = {
    "whoever settles is believed": [
        ("settle.one", "grant_id = :grant", "length(:grant) > 0"),
        ("settle.done", *GUARD),
        ("settle.special", *GUARD),
        ("settle.take", "grant_id = :grant", "length(:grant) > 0"),
    ],
    "whoever renews is believed": [("renew.keep", "grant_id = :grant", "length(:grant) > 0")],
    "whoever reports progress is believed": [
        ("progress.write", "l.grant_id = :grant", "length(:grant) > 0")
    ],
    "recovery does not look again": [
        ("settle.take", "boot_end < :boot_now)", "boot_end < :boot_now or 1)")
    ],
    "leases end by the wall clock": [
        ("lapsed.leases", "l.boot_end < :boot_now", "l.lease_timeout < :now"),
        ("settle.take", "boot_end < :boot_now", "lease_timeout < :now"),
    ],
    "a zombie hears that recovery's row is its own": [
        ("settled", "o.ended_by = 'holder'", "true"),
        ("settled", "a.ended_by = 'holder'", "true"),
    ],
    "a grant is not charged": [("claim.lease", "r.tries + 1", "r.tries")],
    "the fence stands still": [("claim.lease", "r.fence + 1", "r.fence")],
    "a retry forgets the limit of tries": [
        ("settle.judge", "not :refund and :tries >= ", "not :refund and :tries > ")
    ],
    "deaths are forgiven to whoever records nothing": [
        ("settle.judge", "limit 1) = :fence, 0)", "limit 1) > 0, 0)")
    ],
    "errors are forgiven like deaths": [("settle.failures", "a.ended = 'retry'", "0")],
    "a cancellation is forgotten by a retry": [
        ("settle.judge", "when t.cancel_requested then 'cancelled'", "when 0 then ''")
    ],
    "a cancellation is forgotten when its task comes up": [
        ("later.judge", "when t.cancel_requested then 'cancelled'", "when 0 then ''")
    ],
    "what was freed is forgotten": [("freed.add", "values (:gate, :n)", "values (:gate, :n * 0)")],
    "a rate is not counted": [("gate.count", ":took * rate_interval", ":took * 0 * rate_interval")],
    "a rate stays closed when the clock is set back": [
        ("gate.room", "max(g.rate_next > :now + g.rate_burst * g.rate_interval * 1e6 + 1)", "0")
    ],
    "a settle wakes nobody behind its key": [
        ("nudge.add", "values (:pool, :key, :freed)", "select :pool, :key, :freed where :freed = 0")
    ],
    "a pause is not seen": [("claim.heads", "where not l.paused", "where 1")],
    "cleanup takes what a parent needs": [
        ("cleanup.ended", "and not exists (", "and 1 or not exists ("),
        ("forget.free", "and not exists (", "and 1 or not exists ("),
    ],
    "a cancellation is forgotten by a change": [
        ("edit.seen", "t.cancel_requested or", "0 or"),
    ],
    "a function that waits is changed": [("edit.later", "and w.waiting is null", "")],
    "a change of its expiry is forgotten": [
        ("edit.task", "expires_at = :expires_at", "expires_at = expires_at")
    ],
    "a child wakes nobody": [
        ("wake.add", "where exists (", "where 0 and exists ("),
        ("wake.parent", "where t.id = :id", "where 0 and t.id = :id"),
    ],
    "a key is given to everybody": [
        ("key.holder", "k.key = :key", "k.key = :key and k.fingerprint is null")
    ],
}


@contextmanager
def planted(changes: list[Change]) -> Iterator[None]:
    before = dict(STATEMENTS)
    try:
        for name, says, instead in changes:
            sql, _ = STATEMENTS[name]
            changed = sql.replace(says, instead, 1)
            assert changed != sql, f"{name} no longer says {says!r}"
            STATEMENTS[name] = (changed, queries.parameters(changed))
        yield
    finally:
        STATEMENTS.update(before)
