"""What operators and cleanup may do."""

import json
from typing import Any

from holdfast.tasks.limits import Limit
from tests.simulation.ledger import Ledger, Step, raw
from tests.simulation.moves import entered, must_end, must_go_on
from tests.simulation.plan import RATES


def request_cancel(ledger: Ledger, step: Step) -> None:
    """Only a mark: the withdrawal comes in a call of its own."""
    if step.changed:
        ledger.fail("a request moved something", step, *step.changed)
    answer = {raw(id): state for id, state in step.answer}
    is_asked = step.asked["rule"] == "asked"  # else only where its parent has ended, or ends
    for id in (id.bytes for id in step.asked["ids"]):
        stand = ledger.stands.get(id)
        is_known = stand is not None
        if (id in answer) > is_known or (is_asked and is_known > (id in answer)):
            ledger.fail("knows a task that is not there, or the other way round", step, id)
        if stand is None or id not in answer:
            continue
        if answer[id] != stand.state:
            ledger.fail(f"answered {answer[id]}", step, id)
        if stand.place != "outcome":
            ledger.tasks[id].cancel = True


def withdraw(ledger: Ledger, step: Step) -> None:
    """What nobody holds ends; what somebody holds stays with its holder, and what was given a new
    life meanwhile lives."""
    asked = step.asked
    ((withdrawn, _),) = step.answer
    free = {
        id.bytes
        for id in asked["ids"]
        if (was := step.before.get(id.bytes)) and was.place in ("ready", "later", "blocked")
        if ledger.tasks[id.bytes].cancel or asked["state"] != "cancelled"
    }
    if set(step.changed) != free or set(map(raw, withdrawn or ())) != free:
        ledger.fail("withdrew more or less than was free", step, *free ^ set(step.changed))
    for id in free:
        must_end(ledger, step, id, asked["state"], "operator")
    ledger.world.sometimes("cancelled before it started", bool(free))
    ledger.world.sometimes("cancellation requested from the holder", len(free) < len(asked["ids"]))


def retry(ledger: Ledger, step: Step) -> None:
    """A new life, or ahead of its time. Tries begin anew, the fence goes on."""
    ids = {id.bytes for id in step.asked["ids"]}
    moved = set(map(raw, step.answer[0][0] or ()))
    expected = set()
    for id in ids & ledger.tasks.keys():
        was, known = step.before[id], ledger.tasks[id]
        key = ledger.keys.get((known.tenant, known.key or ""))
        if was.place == "outcome" and was.state != "done" and (not key or key[0] == id):
            expected.add(id)
            known.cancel, known.expires_at, known.ended_at = False, None, None
            known.paid = known.errors = 0
            place = "ready" if known.concurrency_key is None else "blocked"
            must_go_on(ledger, step, id, place, 0, alone=False)
            ledger.world.sometimes("an ended task got a new life")
        elif was.place == "later" and was.waiting is None:
            expected.add(id)
            entered(ledger, step, id)
            ledger.world.sometimes("a delayed task went ahead")
    if moved != expected or set(step.changed) != expected:
        ledger.fail("moved other tasks than it should", step, *moved ^ expected)


def cleanup(ledger: Ledger, step: Step) -> None:
    asked = step.asked
    for id in step.changed:
        _forgotten(ledger, step, id)
        state = step.before[id].state
        kept = asked["dead_letters"] if state == "failed" else asked["retention"]
        ended_at = ledger.tasks[id].ended_at
        if kept is None or ended_at is None or ended_at >= ledger.wall - round(kept * 1e6):
            ledger.fail("forgotten too early", step, id)
        _drop(ledger, id)
    for stand in ledger.stands.values():
        known = ledger.tasks[stand.id]
        if stand.state == "done" and ledger.alive(known.parent):
            old = (known.ended_at or 0) < ledger.wall - round(asked["retention"] * 1e6)
            ledger.world.sometimes("cleanup kept what a parent may still ask for", old)


def discard(ledger: Ledger, step: Step) -> None:
    for id in step.changed:
        _forgotten(ledger, step, id)
        if step.before[id].state != "failed":
            ledger.fail("discarded what is no dead letter", step, id)
        _drop(ledger, id)
        ledger.world.sometimes("a dead letter was discarded")


def _forgotten(ledger: Ledger, step: Step, id: bytes) -> None:
    if id in ledger.stands or step.before[id].place != "outcome":
        ledger.fail("only what has ended is forgotten, and then whole", step, id)
    parent = ledger.tasks[id].parent
    if parent is not None and parent in step.before and step.before[parent].place != "outcome":
        ledger.fail("forgotten, but its parent may still ask for it", step, id)


def _drop(ledger: Ledger, id: bytes) -> None:
    known = ledger.tasks.pop(id)
    ledger.forgotten.add(id)
    for lost in ledger.lost_by.values():
        lost.discard(id)  # its attempts are forgotten with it
    place = (known.tenant, known.key or "")
    if place in ledger.keys and ledger.keys[place][0] == id:
        del ledger.keys[place]


def pause(ledger: Ledger, step: Step) -> None:
    if step.changed:
        ledger.fail("a pause moved something", step, *step.changed)
    (ledger.paused.add if step.asked["paused"] else ledger.paused.discard)(step.asked["queue"])


def set_limit(ledger: Ledger, step: Step) -> None:
    """What a wider limit had let in lines up again; nothing else moves."""
    asked = step.asked
    limit = limit_of(asked["limit"])
    lined_up = {
        was.id
        for was in step.before.values()
        if was.place == "ready" and was.key is not None and limit.max_per_key is not None
        and asked["name"] == ledger.tasks[was.id].type
    }  # fmt: skip
    if set(step.changed) != lined_up:
        ledger.fail("a limit moved something", step, *set(step.changed) ^ lined_up)
    for id in step.changed:
        was = step.before[id]
        must_go_on(ledger, step, id, "blocked", was.tries, bool(was.alone))
    ledger.world.sometimes("a lower limit sent tasks back behind their keys", bool(lined_up))
    ledger.limits.set(asked["kind"], asked["name"], limit)


def limit_of(said: str | None) -> Limit:
    """Read without the help of those who wrote it."""
    asked: Any = json.loads(said) if said else {}
    return Limit(
        max_running=asked.get("max_running"),
        max_per_key=asked.get("max_per_key"),
        rate=RATES[asked["interval"], asked["burst"]] if "interval" in asked else None,
    )
