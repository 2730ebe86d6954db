"""Coming in, being claimed, renewed, settled and lost: the lease is the permission."""

from typing import Any

from tests.simulation.keys import take_keys
from tests.simulation.ledger import DEFAULT_TRIES, FOREVER, Known, Ledger, Stand, Step, raw
from tests.simulation.moves import entered, must_end, must_go_on

FINAL = ("done", "failed", "cancelled")


def accept(ledger: Ledger, step: Step) -> None:
    """All of them or none; one task for one key (I6)."""
    asked = step.asked
    if step.answer is None:
        if step.changed:
            ledger.fail("refused, but something came in", step, *step.changed)
        return
    new, late = take_keys(ledger, asked)
    answer = list(zip(*(part or () for part in step.answer[0]), strict=True))
    given = [(raw(id), raw(holder), bool(conflict)) for id, holder, conflict in answer]
    if given != late:
        ledger.fail(f"keys: answered {given}, should be {late}", step)
    if set(step.changed) != new:
        ledger.fail("other tasks came in than were asked for", step, *new ^ set(step.changed))
    for n, id in enumerate(id.bytes for id in asked["ids"]):
        if id in new:
            _came_in(ledger, step, n, id)
    found = {(t, k): id for t, k, id in ledger.conn.execute("select tenant, key, id from task_key")}
    if found != {place: holder[0] for place, holder in ledger.keys.items()}:
        ledger.fail("the table of keys is not what it should be", step)


def _came_in(ledger: Ledger, step: Step, n: int, id: bytes) -> None:
    def of(column: str) -> Any:
        values = step.asked[column]
        return None if values is None else values[n]

    queue, type, tenant = ledger.lanes[of("lanes")]
    wall = ledger.wall
    delay, run_at, expires, parent = of("delays"), of("run_ats"), of("expires"), of("parents")
    ledger.tasks[id] = Known(
        id=id,
        type=type,
        queue=queue,
        tenant=tenant,
        np=of("nps"),
        key=of("keys"),
        concurrency_key=of("concurrency_keys"),
        user_id=of("user_ids"),
        max_tries=of("max_tries") or DEFAULT_TRIES,
        expires_at=None if expires is None else wall + round(expires * 1e6),
        parent=None if parent is None else parent.bytes,
    )
    if of("concurrency_keys") is not None:
        ledger.limits.keyed = True
    due = wall + round(delay * 1e6) if delay else None
    if run_at is not None:
        due = round(run_at.timestamp() * 1e6)
    stand = ledger.stands[id]
    place = "later" if due is not None and due > wall else "ready"
    if place == "ready" and of("concurrency_keys") is not None:
        place = "blocked"
    if (stand.place, stand.fence, stand.tries, stand.alone) != (place, 0, 0, 0):
        ledger.fail(f"should have come in to {place}, new", step, id)
    if place == "later" and stand.run_at != due:
        ledger.fail(f"should be due at {due}", step, id)


def claim(ledger: Ledger, step: Step) -> None:
    """Ready rows move under a lease; due and unblocked ones may come up on the way."""
    asked, granted = step.asked, []
    for id in step.changed:
        was, now = step.before[id], ledger.stands.get(id)
        if now is not None and now.place == "lease":
            granted.append(_granted(ledger, step, was, now))
        elif was.place == "later":
            if was.run_at is None or was.run_at > ledger.wall:
                ledger.fail("came up before its time", step, id)
            if now is not None and now.place == "ready" and was.key is not None:
                must_go_on(ledger, step, id, "ready", was.tries, bool(was.alone))
            else:
                entered(ledger, step, id)
        elif was.place == "blocked":
            must_go_on(ledger, step, id, "ready", was.tries, bool(was.alone))
        else:
            ledger.fail("a claim moved it astray", step, id)
    if len(granted) > asked["want"]:
        ledger.fail("more than it wanted", step, *(stand.id for stand in granted))
    users = dict(zip(map(raw, step.answer[0][7] or ()), step.answer[0][14] or (), strict=True))
    for stand in granted:
        if users.get(stand.id) != ledger.tasks[stand.id].user_id:
            ledger.fail("granted in the name of another user", step, stand.id)
    ledger.granted[asked["grant"].bytes] = {stand.id: stand for stand in granted}
    ledger.limits.started(granted)
    ledger.limits.check()
    _passed_over(ledger, step, granted)


def _granted(ledger: Ledger, step: Step, was: Stand, now: Stand) -> Stand:
    asked, known = step.asked, ledger.tasks[now.id]
    if was.place == "later" and (
        known.cancel or known.expired(ledger.wall) or (was.run_at or 0) > ledger.wall
    ):
        ledger.fail("granted, but it should not have come up", step, now.id)
    if was.place not in ("ready", "later", "blocked"):
        ledger.fail("granted while it was held, or after its end", step, now.id)
    if (now.grant, now.worker) != (asked["grant"].bytes, asked["worker"]):
        ledger.fail("granted to somebody else", step, now.id)
    if now.fence != was.fence + 1 or now.tries != was.tries + 1:
        ledger.fail("a grant must raise the fence and charge a try", step, now.id)
    if now.tries > known.max_tries:
        ledger.fail(f"more tries than {known.max_tries}", step, now.id)
    known.paid += 1
    if known.paid > known.max_tries + 1:
        ledger.fail(f"granted {known.paid} times for {known.max_tries} tries", step, now.id)
    if now.lane not in asked["lanes"] or known.queue in ledger.paused:
        ledger.fail("not among the lanes that it serves, or paused", step, now.id)
    _until(ledger, step, now)
    ledger.world.sometimes("granted although its cancellation was asked for", known.cancel)
    return now


def _until(ledger: Ledger, step: Step, now: Stand) -> None:
    """A lease ends by the clock of the database, counted from the commit (I10)."""
    end = ledger.world.clock.boot() + round(step.asked["lease"] * 1e6)
    if (now.boot, now.boot_end) != (ledger.boot, end):
        ledger.fail(f"its lease should end at {end}", step, now.id)


def _passed_over(ledger: Ledger, step: Step, granted: list[Stand]) -> None:
    """No eligible task is left while there was room, none was overtaken in its lane (I9)."""
    contended, full, next_due, *_ = step.answer[0][15:]
    asked, wall = step.asked, ledger.wall
    short = len(granted) < asked["want"]
    lanes = set(asked["lanes"])
    left = [
        stand
        for stand in ledger.stands.values()
        if stand.place == "ready"
        and stand.lane in lanes
        and ledger.tasks[stand.id].queue not in ledger.paused
    ]
    closed = {lane: ledger.limits.closed(lane) for lane in {s.lane for s in left} if lane}
    for stand in left:
        assert stand.lane is not None
        for taken in granted:
            if taken.lane == stand.lane and stand.order < taken.order:
                ledger.fail("overtaken within its lane", step, stand.id, taken.id)
            if stand.order[0] < taken.order[0] and not closed[stand.lane]:
                ledger.fail("a less urgent task was taken", step, stand.id, taken.id)
        if short and not closed[stand.lane] and contended is None:
            ledger.fail("eligible, but left behind by a claim that had room", step, stand.id)
        if short and ledger.limits.waits_too_long(stand.lane):
            ledger.fail("its rate stays closed for longer than an interval", step, stand.id)
    if short and left and contended is None and not full:
        ledger.fail("work is left, but the claim does not say that it is full", step, left[0].id)
    ledger.world.sometimes("a claim found its gates full", full)
    dues = [s.run_at for s in ledger.stands.values() if s.run_at and s.run_at < FOREVER]
    if short and dues and (next_due is None or next_due * 1e6 > max(min(dues) - wall, 0) + 2):
        ledger.fail(f"next due in {next_due} s, but something is due sooner", step)


def renew(ledger: Ledger, step: Step) -> None:
    """Exactly the leases that stand with that grant; the others are told as lost."""
    asked = step.asked
    held = _held(step, asked["ids"], asked["grants"])
    answer = {raw(id): bool(cancel) for id, cancel in step.answer}
    if answer.keys() != held:
        ledger.fail("renewed more or less than is held", step, *held ^ answer.keys())
    for id in step.changed:
        was, now = step.before[id], ledger.stands[id]
        _until(ledger, step, now)
        if id not in held or now._replace(boot=was.boot, boot_end=was.boot_end) != was:
            ledger.fail("a renewal changed more than the end of the lease", step, id)
    for id in held:
        if answer[id] != ledger.tasks[id].cancel:
            ledger.fail(f"cancellation: was told {answer[id]}", step, id)
        ledger.world.sometimes("a holder was told to cancel", answer[id])
        ledger.world.sometimes("renewed after its end", ledger.lapsed(step.before[id]))
    _untouched(ledger, step, held)


def guarded(ledger: Ledger, step: Step) -> None:
    """Progress and steps: written by the holder, or not at all."""
    held = _held(step, [step.asked["id"]], [step.asked["grant"]])
    if step.changed or bool(step.answer[0][0]) != bool(held):
        ledger.fail("written by somebody who does not hold it, or refused to the holder", step)
    _untouched(ledger, step, held)


def record(ledger: Ledger, step: Step) -> None:
    guarded(ledger, step)
    id = step.asked["id"].bytes
    if step.answer[0][0]:
        for position in step.asked["positions"]:
            ledger.tasks[id].journal.setdefault(position, step.before[id].fence)


def _held(step: Step, ids: Any, grants: Any) -> set[bytes]:
    if len(grants) == 1:
        grants = [*grants] * len(ids)
    pairs = ((id.bytes, grant.bytes) for id, grant in zip(ids, grants, strict=True))
    return {
        id
        for id, grant in pairs
        if (was := step.before.get(id)) and was.place == "lease" and was.grant == grant
    }


def _untouched(ledger: Ledger, step: Step, held: set[bytes]) -> None:
    """A stale lease changes not one byte (I2)."""
    if not held:
        if step.changes:
            ledger.fail(f"a stale lease changed {step.changes} rows", step)
        ledger.world.sometimes(f"a zombie's {step.verb} was refused")


def lapsed(ledger: Ledger, step: Step) -> None:
    """Every lease past its end, and whether its worker lost others too (rule 12)."""
    leases = [stand for stand in ledger.stands.values() if stand.place == "lease"]
    past = {stand.id: stand for stand in leases if ledger.lapsed(stand)}
    answer = {raw(row[0]): row for row in step.answer}
    if answer.keys() != past.keys():
        ledger.fail("other leases have lapsed", step, *answer.keys() ^ past.keys())
    step.process.looked = {}
    for id, stand in past.items():
        company = sum(s.worker == stand.worker for s in leases) > 1
        company = company or bool(ledger.lost_by.get(stand.worker or 0, set()) - {id})
        got_on = ledger.tasks[id].got_on(stand.fence)
        if [bool(told) for told in answer[id][10:12]] != [company, got_on]:
            ledger.fail(f"in company, recorded: answered {answer[id][10:12]}", step, id)
        expired = ledger.tasks[id].expired(ledger.wall)
        step.process.looked[id] = (company, got_on, expired)


def settle(ledger: Ledger, step: Step) -> None:
    """Guarded by (task, grant); what follows is decided by what the database knows just then."""
    asked = step.asked
    held = _held(step, asked["ids"], asked["grants"])
    recovery = asked["by"] == "recovery"
    if recovery != asked["lapsed_only"]:
        ledger.fail("only recovery looks at the clock, and it always does", step)
    if recovery:
        renewed = {id for id in held if not ledger.lapsed(step.before[id])}
        ledger.world.sometimes("renewed just before it was recovered", bool(renewed))
        held -= renewed
    if set(step.changed) != held:
        ledger.fail("settled more or less than is held", step, *held ^ set(step.changed))
    for n, id in enumerate(id.bytes for id in asked["ids"]):
        if id in held:
            _settled(ledger, step, n, id)
    _untouched(ledger, step, held)


def settle_one(ledger: Ledger, step: Step) -> None:
    """The same for one that is done."""
    asked = {"ids": [step.asked["id"]], "grants": [step.asked["grant"]], "by": "holder"}
    nothing = dict.fromkeys(("verdicts", "refunds", "alones", "delays"))
    settle(ledger, step._replace(asked={**nothing, **asked, "lapsed_only": False}))


def _settled(ledger: Ledger, step: Step, n: int, id: bytes) -> None:
    asked, was, known = step.asked, step.before[id], ledger.tasks[id]
    assert was.grant is not None
    verdict = asked["verdicts"][n] if asked["verdicts"] else "done"
    refund = bool(asked["refunds"] and asked["refunds"][n])
    alone = bool(was.alone) or bool(asked["alones"] and asked["alones"][n])
    by = asked["by"]
    if by == "holder":
        ledger.written.add((id, was.grant))
    elif verdict not in FINAL and refund != _given_back(step, id):
        ledger.fail(
            "lost in company or after a record it pays nothing once, else it pays", step, id
        )
    elif verdict in FINAL and not _must_end(step, known, was, verdict):
        ledger.fail(f"lost, but it need not end as {verdict}", step, id)
    ends = _ends(ledger, known, was, verdict, refund)
    if ends is not None:
        must_end(ledger, step, id, ends, by)
        now = ledger.stands[id]
        if (now.grant, now.worker) != (was.grant, was.worker):
            ledger.fail("its outcome names another holder", step, id)
        _note_end(ledger, known, verdict, ends, by)
        return
    tries = was.tries - refund
    known.errors += verdict == "retry"
    known.paid -= refund and not (verdict == "lost" and step.process.looked[id][0])
    lonely = bool(asked["alones"] and asked["alones"][n])
    if refund and not lonely and known.got_on(was.fence):
        ledger.world.sometimes(
            "it got on, and the deaths of its workers are forgiven", tries > known.errors
        )
        tries, alone, known.paid = known.errors, False, known.errors
    if verdict == "lost":
        ledger.lost_by.setdefault(was.worker or 0, set()).add(id)
        ledger.world.sometimes("lost in company, its try given back", refund and lonely)
        ledger.world.sometimes("lost after it had got on: it pays nothing", refund and not lonely)
    if verdict in ("retry", "snoozed", "waiting"):
        now = must_go_on(ledger, step, id, "later", tries, alone)
        delay = asked["delays"][n]
        due = FOREVER if delay is None else ledger.wall + round(delay * 1e6)
        if now.run_at != due or (now.waiting is not None) != (verdict == "waiting"):
            ledger.fail(f"should wait until {due}", step, id)
        if verdict == "waiting":
            step.process.put_down.add(id)
    else:
        place = "ready" if known.concurrency_key is None else "blocked"
        now = must_go_on(ledger, step, id, place, tries, alone)
        if now.seq != was.seq:
            ledger.fail("it lost its place", step, id)


def _given_back(step: Step, id: bytes) -> bool:
    """A loss that costs nothing: the first in company, or one alone after something new."""
    company, got_on, _ = step.process.looked[id]
    return not step.before[id].alone if company else got_on


def _must_end(step: Step, known: Known, was: Stand, verdict: str) -> bool:
    """Why recovery may end it: by what it saw when it looked. Later news may come too late."""
    if verdict == "cancelled":
        return known.cancel
    *_, expired = step.process.looked[was.id]
    return expired or (was.tries >= known.max_tries and not _given_back(step, was.id))


def _ends(ledger: Ledger, known: Known, was: Stand, verdict: str, refund: bool) -> str | None:
    if verdict in FINAL:
        return verdict
    if known.cancel:
        return "cancelled"
    if known.expired(ledger.wall):
        return "failed"
    if not refund and was.tries >= known.max_tries:
        return "failed"
    return None


def _note_end(ledger: Ledger, known: Known, verdict: str, ends: str, by: str) -> None:
    sometimes = ledger.world.sometimes
    if by == "recovery":
        sometimes("lost for the last time: a dead letter", ends == "failed")
        sometimes("poison ended in the dead letters", known.type == "poison" and ends == "failed")
        sometimes("lost, and cancelled by recovery", ends == "cancelled")
    elif verdict not in FINAL:
        sometimes("a retry was overtaken by a cancellation", ends == "cancelled")
        sometimes("a retry had no tries left", ends == "failed" and not known.expired(ledger.wall))
        sometimes("a retry came too late", ends == "failed" and known.expired(ledger.wall))
