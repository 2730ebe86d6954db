"""Limits as they must hold at every commit, counted beside the database (I5)."""

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from holdfast.tasks.limits import Limit

if TYPE_CHECKING:
    from tests.simulation.ledger import Ledger, Stand

_GATES = """
select
  g.kind, g.name,
  g.running - coalesce((select sum(f.n) from freed f where f.gate = g.id), 0),
  (select count(*) from lease l, json_each(l.gates) a where a.value = g.id),
  g.rate_next
from gate g
"""
_KEYS = """
select
  k.pool, k.key,
  coalesce((select g.running from key_gate g where g.pool = k.pool and g.key = k.key), 0)
    - coalesce((select sum(n.freed) from nudge n where n.pool = k.pool and n.key = k.key), 0),
  exists (select 1 from nudge n where n.pool = k.pool and n.key = k.key),
  exists (select 1 from blocked b where b.pool = k.pool and b.key = k.key)
from (
  select pool, key from key_gate
  union
  select pool, key from nudge
  union
  select pool, key from blocked
) k
"""

Gate = tuple[str, str]  # kind, name


def gates_of(queue: str, type: str, tenant: str) -> list[Gate]:
    return [("type", type), ("queue", queue), ("tenant", tenant)]


class Use(NamedTuple):
    """What one gate lets through: now, and at most until what ran above the limit has ended."""

    limit: Limit
    ceiling: int


class Limits:
    """Counts what runs by what the tasks are, not by what the gates say."""

    def __init__(self, ledger: "Ledger") -> None:
        self._ledger = ledger
        self._limits: dict[Gate, Use] = {}
        self._per_key: dict[str, tuple[int, dict[tuple[str, str], int]]] = {}
        self._starts: dict[Gate, list[int]] = {}
        self._rate_next: dict[Gate, int | None] = {}
        self.keyed = False  # somebody used a concurrency key
        self.stale = False  # something was written since the last check

    def set(self, kind: str, name: str, limit: Limit) -> None:
        gate = (kind, name)
        running = self._running()[gate]
        self._limits[gate] = Use(limit, max(limit.max_running or 0, running))
        self._starts[gate] = []
        if kind == "type":
            self._per_key.pop(name, None)
            if limit.max_per_key is not None:
                self._per_key[name] = (limit.max_per_key, dict(self._running_keys(name)))

    def clock_was_set(self) -> None:
        """Rates are kept in wall time: what started before cannot be compared."""
        for starts in self._starts.values():
            starts.clear()

    def started(self, stands: "list[Stand]") -> None:
        wall = self._ledger.wall
        for stand in stands:
            known = self._ledger.tasks[stand.id]
            for gate in gates_of(known.queue, known.type, known.tenant):
                use = self._limits.get(gate)
                if use is None or use.limit.rate is None:
                    continue
                rate, starts = use.limit.rate, self._starts[gate]
                starts.append(wall)
                if len(starts) > rate.count:
                    span = (wall - starts[-1 - rate.count]) / 1e6
                    if span < rate.period - 2e-6 * rate.interval - 2e-6:
                        self._ledger.fail(
                            f"{rate.count + 1} starts of {gate} within {span} s", None, stand.id
                        )

    def closed(self, lane: int) -> bool:
        """Whether a gate of this lane lets nobody through just now."""
        return any(self._is_full(gate) or self._opens(gate) > 0 for gate in self._gates(lane))

    def waits_too_long(self, lane: int) -> bool:
        """A rate opens within one interval: clocks that were set and old rates hold up nobody."""
        for gate in self._gates(lane):
            rate = self._limits[gate].limit.rate
            if rate is not None and self._opens(gate) > rate.interval + 1e-5:
                return True
        return False

    def _gates(self, lane: int) -> list[Gate]:
        return [gate for gate in gates_of(*self._ledger.lanes[lane]) if gate in self._limits]

    def _is_full(self, gate: Gate) -> bool:
        most = self._limits[gate].limit.max_running
        return most is not None and self._running()[gate] >= most

    def _opens(self, gate: Gate) -> float:
        rate, next = self._limits[gate].limit.rate, self._rate_next.get(gate)
        if rate is None or next is None:
            return 0.0
        return (next - self._ledger.wall) / 1e6 - (rate.burst - 1) * rate.interval

    def check(self) -> None:
        if not self.stale:
            return
        self.stale = False
        if self._limits:
            self._check_gates()
        if self.keyed:
            self._check_keys()

    def _check_gates(self) -> None:
        running = self._running()
        for gate, (limit, ceiling) in self._limits.items():
            if limit.max_running is None:
                continue
            if running[gate] > ceiling:
                self._ledger.fail(f"{running[gate]} of {gate} run, at most {ceiling} may", None)
            lowest = max(limit.max_running, min(ceiling, running[gate]))
            self._limits[gate] = Use(limit, lowest)
        for kind, name, counted, marked, rate_next in self._ledger.conn.execute(_GATES):
            gate = (kind, name)
            self._rate_next[gate] = rate_next
            use = self._limits.get(gate)
            if counted != marked:
                self._ledger.fail(f"{gate} counts {counted}, {marked} leases say so", None)
            if use and use.limit.max_running is not None and counted != running[gate]:
                self._ledger.fail(f"{gate} counts {counted}, {running[gate]} run", None)

    def _check_keys(self) -> None:
        let_in: Counter[tuple[str, str, str]] = Counter()
        running: Counter[tuple[str, str, str]] = Counter()
        for stand in self._ledger.stands.values():
            if stand.key is not None and stand.place in ("ready", "lease"):
                known = self._ledger.tasks[stand.id]
                place = (known.type, known.tenant, stand.key)
                let_in[place] += 1
                running[place] += stand.place == "lease"
        for type, (most, ceilings) in self._per_key.items():
            for (t, tenant, key), n in running.items():
                if t == type and n > max(most, ceilings.get((tenant, key), 0)):
                    self._ledger.fail(f"{n} of {type} run for key {key}, {most} may", None)
            for tenant, key in ceilings:
                ceilings[tenant, key] = min(ceilings[tenant, key], running[type, tenant, key])
        for pool, key, counted, nudged, blocked in self._ledger.conn.execute(_KEYS):
            _, type, tenant = self._ledger.lanes[pool]
            if counted != let_in[type, tenant, key]:
                self._ledger.fail(
                    f"key {key} counts {counted}, {let_in[type, tenant, key]} are let in", None
                )
            most = self._per_key[type][0] if type in self._per_key else 1000
            if blocked and not nudged and counted < most:
                self._ledger.fail(f"key {key} has room, but nobody will look", None)

    def _running(self) -> Counter[Gate]:
        found: Counter[Gate] = Counter()
        tasks = self._ledger.tasks
        for stand in self._ledger.stands.values():
            if stand.place == "lease":
                known = tasks[stand.id]
                found.update(gates_of(known.queue, known.type, known.tenant))
        return found

    def _running_keys(self, type: str) -> Counter[tuple[str, str]]:
        found: Counter[tuple[str, str]] = Counter()
        for stand in self._ledger.stands.values():
            if stand.place == "lease" and stand.key is not None:
                known = self._ledger.tasks[stand.id]
                if known.type == type:
                    found[known.tenant, stand.key] += 1
        return found
