"""What those who ask are told: it must be true at the moment of the answer."""

from collections import Counter

from tests.simulation.ledger import Ledger, Stand, Step, raw

_STATUS = {"ready": "pending", "blocked": "pending", "lease": "running"}


def claimed(ledger: Ledger, step: Step) -> None:
    """What a claim whose answer was lost still holds."""
    grant, worker = step.asked["grant"].bytes, step.asked["worker"]
    held = {
        stand.id
        for stand in ledger.stands.values()
        if stand.place == "lease" and (stand.grant, stand.worker) == (grant, worker)
    }
    if {raw(row[0]) for row in step.answer} != held:
        ledger.fail("told other tasks than this grant holds", step, *held)


def cancel_requested(ledger: Ledger, step: Step) -> None:
    asked = {id.bytes for id in step.asked["ids"]}
    cancelled = {id for id in asked & ledger.tasks.keys() if ledger.tasks[id].cancel}
    if {raw(row[0]) for row in step.answer} != cancelled:
        ledger.fail("told of other cancellations", step, *cancelled)


def get(ledger: Ledger, step: Step) -> None:
    for row in step.answer:
        stand = ledger.stands[raw(row[0])]
        if (row[2], row[9]) != (_status(stand), stand.tries):
            ledger.fail(f"shown as {row[2]} with {row[9]} tries", step, stand.id)


def queue_loads(ledger: Ledger, step: Step) -> None:
    counts: Counter[tuple[str, str]] = Counter()
    for stand in ledger.stands.values():
        queue = ledger.tasks[stand.id].queue
        counts[queue, "waiting" if stand.waiting is not None else stand.place] += 1
        counts[queue, "failed"] += stand.state == "failed"
        counts[queue, "lapsed"] += stand.place == "lease" and ledger.lapsed(stand)
    kinds = ("ready", "later", "blocked", "waiting", "lease", "lapsed", "failed")
    for queue, paused, *numbers in step.answer:
        if bool(paused) != (queue in ledger.paused):
            ledger.fail(f"{queue} is shown as {'' if paused else 'not '}paused", step)
        for kind, number in zip(kinds, numbers, strict=False):
            if number != counts[queue, kind]:
                ledger.fail(f"{queue} shows {number} {kind}, not {counts[queue, kind]}", step)


def _status(stand: Stand) -> str | None:
    if stand.place == "outcome":
        return stand.state
    if stand.place == "later":
        return "pending" if stand.waiting is None else "waiting"
    return _STATUS[stand.place]
