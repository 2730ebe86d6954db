"""What is true beside the database: every task that came in, where it stands, who may move it.

After each call the tables are read, and what changed is compared with what that call may change.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from uuid import UUID

import apsw

from holdfast.stores.sqlite.session import _number
from tests.simulation.limits import Limits
from tests.simulation.world import Process, World

FOREVER = 2**63 - 1
DEFAULT_TRIES = 3

_STANDS = """
select 'ready', id, fence, tries, alone, key, lane, np, seq,
  null, null, null, null, null, null, null, null, null
from ready
union all
select 'later', id, fence, tries, alone, key, lane, np, null,
  run_at, waiting, wakes, null, null, null, null, null, null
from later
union all
select 'blocked', id, fence, tries, alone, key, lane, np, seq,
  null, null, null, null, null, null, null, null, null
from blocked
union all
select 'lease', id, fence, tries, alone, key, lane, np, seq,
  null, null, null, grant_id, worker, boot, boot_end, null, null
from lease
union all
select 'outcome', id, fence, tries, null, null, null, null, null,
  null, null, null, grant_id, worker, null, null, state, ended_by
from outcome
"""


class Violation(AssertionError):
    """A promise was broken."""


class Stand(NamedTuple):
    """Where a task stands: its one row in one of five tables."""

    place: str
    id: bytes
    fence: int
    tries: int
    alone: int | None
    key: str | None
    lane: int | None
    np: int | None
    seq: int | None
    run_at: int | None
    waiting: str | None
    wakes: int | None
    grant: bytes | None
    worker: int | None
    boot: int | None
    boot_end: int | None
    state: str | None
    by: str | None

    @property
    def order(self) -> tuple[int, int]:
        """Its place in the lane: smaller goes first."""
        assert self.np is not None
        assert self.seq is not None
        return self.np, self.seq


@dataclass(slots=True, kw_only=True)
class Known:
    """A task that was accepted."""

    id: bytes
    type: str
    queue: str
    tenant: str
    np: int
    key: str | None
    concurrency_key: str | None
    user_id: str | None
    max_tries: int
    expires_at: int | None
    parent: bytes | None
    cancel: bool = False
    ended_at: int | None = None
    paid: int = 0  # grants of this life, less those given back by hand, snooze or wait, or forgiven
    errors: int = 0  # of this life
    journal: dict[int, int] = field(default_factory=dict)  # by position: the fence that wrote it

    def got_on(self, fence: int) -> bool:
        """Whether this attempt has recorded something."""
        return bool(self.journal) and self.journal[max(self.journal)] == fence

    def expired(self, wall: int) -> bool:
        return self.expires_at is not None and self.expires_at <= wall


class Step(NamedTuple):
    """One call that was committed."""

    process: Process
    verb: str
    asked: Mapping[str, Any]
    answer: Any  # None where it raised
    before: dict[bytes, Stand]
    changed: list[bytes]
    changes: int  # rows that it wrote, in whatever table


Rules = Mapping[str, Callable[["Ledger", Step], None]]


class Ledger:
    """Knows all tasks; `check` is called after every call to the database."""

    def __init__(self, world: World, conn: apsw.Connection, rules: Rules) -> None:
        self.world, self.conn, self._rules = world, conn, rules
        self.tasks: dict[bytes, Known] = {}
        self.stands: dict[bytes, Stand] = {}
        self.open = 0  # tasks that have not ended
        self.forgotten: set[bytes] = set()
        self.acknowledged: set[bytes] = set()
        self.keys: dict[tuple[str, str], tuple[bytes, bytes, bool]] = {}
        self.lanes: dict[int, tuple[str, str, str]] = {}  # queue, type, tenant
        self.paused: set[str] = set()
        self.granted: dict[bytes, dict[bytes, Stand]] = {}  # by grant: what that claim took
        self.written: set[tuple[bytes, bytes]] = set()  # (task, grant) that the holder settled
        self.lost_by: dict[int, set[bytes]] = {}  # by worker: tasks lost to recovery and still kept
        self.limits = Limits(self)
        self._total = conn.total_changes()

    def check(self, process: Process, verb: str, asked: Mapping[str, Any], answer: Any) -> None:
        """Compare what the call changed with what it may change."""
        changes = self._changes()
        self.limits.stale = changes > 0
        before = self.stands
        changed: list[bytes] = []
        if changes:
            self.stands = after = self._look()
            changed = [id for id, stand in after.items() if before.get(id) != stand]
            changed += [id for id in before if id not in after]
        step = Step(process, verb, asked, answer, before, changed, changes)
        rule = self._rules.get(verb)
        if rule is not None:
            rule(self, step)
        elif changed:
            self.fail(f"{verb} moved tasks", step, *changed)
        if changes:
            for id in changed:
                self._note(id)
            self.limits.check()  # also where no task moved: a counter may have

    def _note(self, id: bytes) -> None:
        stand = self.stands.get(id)
        if self.world.verbose:
            self.world.tell(None, f"    {short(id)} {brief(self, stand)}")
        if stand is not None and stand.place == "outcome":
            self.tasks[id].ended_at = self.world.clock.wall()

    def _changes(self) -> int:
        total = self.conn.total_changes()
        before, self._total = self._total, total
        return total - before

    def _look(self) -> dict[bytes, Stand]:
        found: dict[bytes, Stand] = {}
        for row in self.conn.execute(_STANDS):
            stand = Stand._make(row)
            if stand.id in found:
                self.fail("a task stands in two places", None, stand.id)
            found[stand.id] = stand
        self.open = sum(stand.place != "outcome" for stand in found.values())
        return found

    def fail(self, what: str, step: Step | None, *ids: bytes) -> None:
        lines = [what]
        if step is not None:
            lines.append(f"at {self.world.now / 1e6:.6f} s, {step.process.name}: {step.verb}")
        for id in ids:
            was = step.before.get(id) if step is not None else None
            lines.append(f"{short(id)} was {brief(self, was)}")
            lines.append(f"{short(id)} is  {brief(self, self.stands.get(id))}")
        raise Violation("\n  ".join(lines))

    # ── the clocks of the database ───────────────────────────────────────────────────────────

    @property
    def wall(self) -> int:
        return self.world.clock.wall()

    def lapsed(self, stand: Stand) -> bool:
        assert stand.boot_end is not None
        return stand.boot != self.boot or stand.boot_end < self.world.clock.boot()

    @property
    def boot(self) -> int:
        return _number(self.world.clock.boot_id)

    # ── questions of the actors ──────────────────────────────────────────────────────────────

    def alive(self, id: bytes | None) -> bool:
        stand = None if id is None else self.stands.get(id)
        return stand is not None and stand.place != "outcome"


def raw(id: Any) -> bytes:
    """An id as the tables have it."""
    return id.bytes if isinstance(id, UUID) else bytes(id)


def short(id: bytes) -> str:
    return id.hex()[:6]


def brief(ledger: Ledger, stand: Stand | None) -> str:
    if stand is None:
        return "nowhere"
    known = ledger.tasks.get(stand.id)
    words = [stand.place, f"fence {stand.fence}", f"tries {stand.tries}"]
    if known:
        words.insert(0, known.type)
        words += ["cancel asked for"] if known.cancel else []
    if stand.alone:
        words.append("alone")
    if stand.grant:
        words.append(f"grant {short(stand.grant)} of {stand.worker}")
    for name in ("key", "state", "by", "waiting", "run_at", "seq"):
        if (value := getattr(stand, name)) is not None:
            words.append(f"{name} {value}")
    return ", ".join(words)
