"""What each call may change, and what it must answer: the promises, one verb at a time."""

from tests.simulation import editing_rules, steering_rules, view_rules, work_rules
from tests.simulation.ledger import Ledger, Rules, Step
from tests.simulation.moves import entered, must_end


def intern_lanes(ledger: Ledger, step: Step) -> None:
    asked = step.asked
    lanes = zip(asked["queues"], asked["types"], asked["tenants"], strict=True)
    ledger.lanes |= zip(step.answer[0][0], lanes, strict=True)


def promote(ledger: Ledger, step: Step) -> None:
    """Only what is due, and all of it: a batch is larger than any seed."""
    for id in step.changed:
        was = step.before[id]
        if was.place != "later" or was.run_at is None or was.run_at > ledger.wall:
            ledger.fail("promoted before its time", step, id)
        entered(ledger, step, id)
    for id, stand in ledger.stands.items():
        if stand.run_at is not None and stand.run_at <= ledger.wall:
            ledger.fail("due, but not promoted", step, id)


def wake_up(ledger: Ledger, step: Step) -> None:
    for id in step.changed:
        if step.before[id].waiting is None:
            ledger.fail("woken, but it did not wait", step, id)
        entered(ledger, step, id)
        ledger.world.sometimes("woken before it was put down", id in step.process.put_down)
    step.process.put_down.clear()
    asked = {id.bytes for id in step.asked["ids"]}
    unanswered = asked.intersection(_to_be_woken(ledger))
    if unanswered:
        ledger.fail("its wakes have come, but it still waits", step, *unanswered)


def sweep_wakes(ledger: Ledger, step: Step) -> None:
    for id in step.changed:
        if step.before[id].waiting is None:
            ledger.fail("woken, but it did not wait", step, id)
        entered(ledger, step, id)
    ledger.world.sometimes("the sweep woke what its waker had not", bool(step.changed))
    if waiting := _to_be_woken(ledger):
        ledger.fail("its wakes have come, but the sweep left it", step, *waiting)


def _to_be_woken(ledger: Ledger) -> list[bytes]:
    waiting = [stand for stand in ledger.stands.values() if stand.waiting is not None]
    found = []
    for stand in waiting:
        ((count, urgent),) = ledger.conn.execute(
            "select count(*), coalesce(max(urgent), 0) from wake where id = ?", (stand.id,)
        )
        assert stand.wakes is not None
        if urgent or count >= stand.wakes:
            found.append(stand.id)
    return found


def expire(ledger: Ledger, step: Step) -> None:
    for id in step.changed:
        if step.before[id].place not in ("ready", "later", "blocked"):
            ledger.fail("expired while somebody held it", step, id)
        if not ledger.tasks[id].expired(ledger.wall):
            ledger.fail("expired before its time", step, id)
        must_end(ledger, step, id, "failed", "operator")
        ledger.world.sometimes("expired while it waited")


def cut(ledger: Ledger, step: Step) -> None:
    """A commit that failed: as if it had never been asked."""
    if step.changed:
        ledger.fail("a commit that failed left something", step, *step.changed)


RULES: Rules = {
    "intern_lanes": intern_lanes,
    "accept": work_rules.accept,
    "claim": work_rules.claim,
    "renew": work_rules.renew,
    "settle": work_rules.settle,
    "settle_one": work_rules.settle_one,
    "lapsed": work_rules.lapsed,
    "progress": work_rules.guarded,
    "record": work_rules.record,
    "promote": promote,
    "wake_up": wake_up,
    "sweep_wakes": sweep_wakes,
    "expire": expire,
    "request_cancel": steering_rules.request_cancel,
    "withdraw": steering_rules.withdraw,
    "retry": steering_rules.retry,
    "edit": editing_rules.edit,
    "cleanup": steering_rules.cleanup,
    "discard": steering_rules.discard,
    "pause": steering_rules.pause,
    "set_limit": steering_rules.set_limit,
    "claimed": view_rules.claimed,
    "cancel_requested": view_rules.cancel_requested,
    "get": view_rules.get,
    "queue_loads": view_rules.queue_loads,
    "cut": cut,
}
