"""What a change of a task that has not begun may do."""

from tests.simulation.ledger import DEFAULT_TRIES, Ledger, Stand, Step
from tests.simulation.moves import must_end, must_go_on


def edit(ledger: Ledger, step: Step) -> None:
    """What nobody holds, and what goes on, is as it was asked for; all else stays as it is."""
    asked, ((answer,),) = step.asked, step.answer
    id = asked["id"].bytes
    was, known = step.before.get(id), ledger.tasks.get(id)
    is_over = known is None or known.cancel or known.expired(ledger.wall)
    is_open = was is not None and _waits(was) and not is_over
    if (answer == "begun") == is_open:
        ledger.fail(f"answered {answer}", step, id)
    if answer != "edited":
        if step.changes:
            ledger.fail(f"wrote, but answered {answer}", step, id)
        return
    assert was is not None
    assert known is not None
    known.queue, _, _ = ledger.lanes[asked["lane"]]
    known.np, known.max_tries = asked["np"], asked["max_tries"] or DEFAULT_TRIES
    if asked["new_expiry"]:
        expires = asked["expires"]
        known.expires_at = None if expires is None else ledger.wall + round(expires * 1e6)
    if asked["new_time"] or (asked["lane"], asked["np"]) != (was.lane, was.np):
        _moved(ledger, step, was)
    elif step.changed:
        ledger.fail("lost its place, though it was asked for no other", step, id)


def _waits(stand: Stand) -> bool:
    return stand.place in ("ready", "blocked") or (stand.place, stand.waiting) == ("later", None)


def _moved(ledger: Ledger, step: Step, was: Stand) -> None:
    """It waits for its time, or stands where workers look; what is over by then ends."""
    asked, known, alone = step.asked, ledger.tasks[was.id], bool(was.alone)
    if step.changed != [was.id]:
        ledger.fail("moved other tasks than it should", step, *step.changed)
    due = was.run_at or ledger.wall
    if asked["new_time"]:
        due = ledger.wall + round((asked["delay"] or 0) * 1e6)
    if due > ledger.wall:
        now = must_go_on(ledger, step, was.id, "later", was.tries, alone)
        if now.run_at != due:
            ledger.fail(f"should wait until {due}", step, was.id)
    elif known.expired(ledger.wall):
        must_end(ledger, step, was.id, "failed", "operator")
        return
    else:
        place = "ready" if known.concurrency_key is None else "blocked"
        now = must_go_on(ledger, step, was.id, place, was.tries, alone)
    if now.lane != asked["lane"]:
        ledger.fail(f"should wait in lane {asked['lane']}", step, was.id)
    ledger.world.sometimes("a task got another place before it began")
