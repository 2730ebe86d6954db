"""All verbs by name: what each runs, which parameters it takes, which thread it is for."""

from collections.abc import Callable, Sequence
from inspect import signature
from typing import Any
from uuid import UUID

import msgspec

from holdfast.stores.driver import Row
from holdfast.stores.sqlite.procedures import (
    claim,
    edit,
    enqueue,
    flow,
    keys,
    lanes,
    later,
    records,
    settle,
    standing,
    steer,
    upkeep,
    views,
)
from holdfast.stores.sqlite.session import AMBIENT, STATEMENTS, Session, bytes_of

__all__ = ["VERBS", "Verb"]

Procedure = Callable[..., Sequence[Row]]


class Verb(msgspec.Struct, frozen=True, kw_only=True):
    """One verb. `parameters` are those of the same verb on PostgreSQL.

    `page`: reads many rows, for people; workers' questions must not wait for it. `may_be_lost`:
    where it is not asked to be `durable`, its commit need not wait for the disk.
    """

    run: Procedure
    parameters: frozenset[str]
    writes: bool
    page: bool = False
    may_be_lost: bool = False


def _procedure(
    run: Procedure, *, writes: bool = True, page: bool = False, may_be_lost: bool = False
) -> Verb:
    """Parameters with a default are for other procedures that call it."""
    parameters = signature(run).parameters.items()
    names = frozenset(n for n, p in parameters if p.default is p.empty and n != "s")
    return Verb(
        run=run, parameters=names, writes=writes and not page, page=page, may_be_lost=may_be_lost
    )


def _statement(
    name: str,
    shapes: dict[int, Callable[[Any], Any]] | None = None,
    *,
    writes: bool = False,
    page: bool = False,
) -> Verb:
    """A verb that is one statement; some columns of its answer, by number, are put into shape."""

    def run(s: Session, /, **values: Any) -> Sequence[Row]:
        rows = s.rows(name, **values)
        if not shapes:
            return rows
        return [
            tuple(shapes[n](value) if n in shapes else value for n, value in enumerate(row))
            for row in rows
        ]

    names = frozenset(STATEMENTS[name][1]) - AMBIENT
    return Verb(run=run, parameters=names, writes=writes, page=page)


def _for_each_id(name: str) -> Verb:
    def run(s: Session, /, *, ids: list[UUID]) -> Sequence[Row]:
        return s.each(name, id=bytes_of(ids))

    return Verb(run=run, parameters=frozenset({"ids"}), writes=False)


_list = msgspec.json.decode


def _uuid(value: bytes) -> UUID:
    return UUID(bytes=value)


VERBS: dict[str, Verb] = {
    # enqueue
    "intern_lanes": _procedure(lanes.intern_lanes),
    "accept": _procedure(enqueue.accept),
    "known": _procedure(enqueue.known, writes=False),
    "key_holders": _procedure(keys.key_holders, writes=False),
    # work
    "register": _statement("register", writes=True),
    "cancel_requested": _for_each_id("cancel_requested"),
    "sign_off": _statement("sign_off", writes=True),
    "lane_change": _statement("lane_change"),
    "lanes": _statement("lanes", {4: _list, 5: _list}),
    "claim": _procedure(claim.claim),
    "claimed": _procedure(claim.claimed, writes=False),
    "repair": _statement("repair", writes=True),
    "repair_leases": _procedure(settle.repair_leases),
    "renew": _procedure(claim.renew),
    "settle": _procedure(settle.settle),
    "settle_one": _procedure(settle.settle_one),
    "settled": _procedure(settle.settled, writes=False),
    "refuse": _procedure(settle.refuse),
    "progress": _procedure(flow.progress),
    # flow
    "record": _procedure(flow.record),
    "record_child": _procedure(flow.record_child, may_be_lost=True),
    "record_step": _procedure(flow.record_step),
    "record_steps": _procedure(flow.record_steps),
    "restart": _procedure(flow.restart),
    "payload": _statement("payload"),
    "news": _procedure(flow.news, writes=False),
    "past": _for_each_id("past"),
    "steps": _statement("steps"),
    "steps.page": _statement("steps.page", page=True),
    "saved": _statement("saved"),
    "send_signal": _procedure(flow.send_signal),
    "wake_up": _procedure(later.wake_up),
    "watchers": _procedure(later.watchers, writes=False),
    "in_vain": _procedure(later.in_vain, writes=False),
    "orphans": _statement("orphans"),
    "roots": _for_each_id("roots"),
    # upkeep
    "promote": _procedure(later.promote),
    "lapsed": _procedure(upkeep.lapsed, writes=False),
    "add_recovered": _statement("add_recovered", writes=True),
    "recovered_total": _statement("recovered_total"),
    "revoke": _statement("lease.revoke", writes=True),
    "expire": _procedure(upkeep.expire),
    "sweep_wakes": _procedure(later.sweep_wakes),
    "heard": _statement("heard", writes=True),
    "mark_stale": _procedure(upkeep.mark_stale),
    "forget_workers": _procedure(upkeep.forget_workers),
    "take_turn": _procedure(upkeep.take_turn),
    "see_schedules": _procedure(upkeep.see_schedules),
    "move_schedule": _procedure(upkeep.move_schedule),
    "cleanup": _procedure(upkeep.cleanup),
    # steer
    "request_cancel": _procedure(steer.request_cancel),
    "ended_as": _for_each_id("ended_as"),
    "open_descendants": _procedure(steer.open_descendants, writes=False),
    "withdraw": _procedure(steer.withdraw),
    "retry": _procedure(steer.retry),
    "edit": _procedure(edit.edit),
    "discard": _procedure(upkeep.discard),
    "pause": _procedure(steer.pause),
    "request_drain": _statement("request_drain", writes=True),
    "set_limit": _procedure(steer.set_limit),
    "limits": _statement("limits", page=True),
    # views
    "get": _procedure(views.get, writes=False),
    "standing": _procedure(standing.standing, page=True),
    "standing_gates": _procedure(standing.standing_gates, page=True),
    "result": _statement("result"),
    "attempts": _statement("attempts"),
    "list_tasks": _procedure(views.list_tasks, page=True),
    "list_of_user": _procedure(views.list_of_user, page=True),
    "list_ready": _procedure(views.list_ready, page=True),
    "list_scheduled": _procedure(views.list_scheduled, page=True),
    "list_blocked": _statement("list_blocked", {0: _uuid}, page=True),
    "list_waiting": _statement("list_waiting", {0: _uuid}, page=True),
    "list_running": _statement("list_running", {0: _uuid}, page=True),
    "list_ended": _procedure(views.list_ended, page=True),
    "events": _procedure(views.events, page=True),
    "task_events": _statement("task_events", page=True),
    "newest_event": _statement("newest_event"),
    "writers": _procedure(views.writers, page=True),
    "queue_loads": _procedure(views.queue_loads, page=True),
    "leases": _statement("leases", page=True),
    "lease_counts": _statement("lease_counts", page=True),
    "now": _statement("now"),
    "recoveries": _statement("recoveries", {1: _uuid}, page=True),
    "workers": _statement("workers", dict.fromkeys((5, 6, 7, 8, 20), _list), page=True),
    "dead_letter_groups": _statement("dead_letter_groups", page=True),
    # keys, audits, requests
    "add_key": _statement("add_key", writes=True),
    "keys": _statement("keys", {3: _list}),
    "revoke_key": _statement("revoke_key", writes=True),
    "touch_keys": _statement("touch_keys", writes=True),
    "note": _statement("note", writes=True),
    "audits": _procedure(records.audits, page=True),
    "begin_request": _procedure(records.begin_request),
    "end_request": _statement("end_request", writes=True),
    "drop_request": _statement("drop_request", writes=True),
    # logs, operations, roll-ups
    "log": _procedure(records.log),
    "logs": _statement("logs", page=True),
    "start_operation": _statement("start_operation", writes=True),
    "operations": _statement("operations", page=True),
    "cancel_operation": _statement("cancel_operation", writes=True),
    "take_operations": _statement("take_operations", writes=True),
    "advance_operation": _statement("advance_operation", writes=True),
    "end_operation": _statement("end_operation", writes=True),
    "rolled_up": _statement("rolled_up"),
    "event_numbers": _statement("event_numbers", page=True),
    "roll_up": _procedure(records.roll_up),
    "rollups": _procedure(records.rollups, page=True),
    "forget_records": _procedure(records.forget_records),
    # a wall between tenants, which needs roles
    "wall": _procedure(records.wall, writes=False),
    "is_walled": _procedure(records.is_walled, writes=False),
}
