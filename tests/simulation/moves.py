"""The ways from one place to the next that several calls share."""

from tests.simulation.ledger import Ledger, Stand, Step


def must_end(ledger: Ledger, step: Step, id: bytes, state: str, by: str) -> None:
    """Its outcome stands, with all that it was charged; an end is written once."""
    was, now = step.before[id], ledger.stands.get(id)
    if was.place == "outcome":
        ledger.fail("ended twice", step, id)
    if now is None or (now.place, now.state, now.by) != ("outcome", state, by):
        ledger.fail(f"should have ended as {state} by {by}", step, id)
    assert now is not None
    if (now.fence, now.tries) != (was.fence, was.tries):
        ledger.fail("fence or tries changed at its end", step, id)


def must_go_on(ledger: Ledger, step: Step, id: bytes, place: str, tries: int, alone: bool) -> Stand:
    """It waits again, under the fence that it had: fences only grow, and only by a claim."""
    was, now = step.before[id], ledger.stands.get(id)
    if now is None or now.place != place:
        ledger.fail(f"should stand in {place}", step, id)
    assert now is not None
    if (now.fence, now.tries, bool(now.alone)) != (was.fence, tries, alone):
        ledger.fail(
            f"should have fence {was.fence}, tries {tries}, {'' if alone else 'not '}alone",
            step,
            id,
        )
    known = ledger.tasks[id]
    if (now.np, now.key) != (known.np, known.concurrency_key):
        ledger.fail("its priority or key changed", step, id)
    return now


def entered(ledger: Ledger, step: Step, id: bytes) -> None:
    """From later to where workers look; what was cancelled or has expired ends instead."""
    known = ledger.tasks[id]
    if step.before[id].place != "later":
        ledger.fail("entered its lane, but not from later", step, id)
    if known.cancel:
        must_end(ledger, step, id, "cancelled", "operator")
        ledger.world.sometimes("cancelled when it came up")
    elif known.expired(ledger.wall):
        must_end(ledger, step, id, "failed", "operator")
        ledger.world.sometimes("expired when it came up")
    else:
        was = step.before[id]
        place = "ready" if known.concurrency_key is None else "blocked"
        must_go_on(ledger, step, id, place, was.tries, bool(was.alone))
