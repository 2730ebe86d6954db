"""How attempts end: one guarded statement, and what must be heard of it."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any
from uuid import UUID

from holdfast.errors import InvalidInput, LeaseLost, TaskEnds
from holdfast.stores.base import Base, stands_twice
from holdfast.stores.driver import MisplacedTask
from holdfast.stores.settlements import asked, begun_anew, left_out, waiting
from holdfast.tasks.lifecycle import Settlement, Verdict
from holdfast.tasks.task import Lease

__all__ = ["Settling"]

_DONE = Verdict.DONE  # to look a member up takes longer than to compare it


class Settling(Base):
    """The `settle` of `holdfast.store.Working`."""

    async def settle(
        self,
        settlements: Sequence[tuple[Lease, Settlement]],
        *,
        default_tries: int = 3,
        conn: Any = None,
        is_awake: Callable[[UUID], bool] | None = None,
    ) -> frozenset[UUID]:
        if not settlements:
            return frozenset()
        if conn is not None:
            return await self._settle_on(conn, settlements, default_tries)
        accepted, parents = await self._settle(settlements, "holder", default_tries)
        refused = left_out(settlements, accepted)
        refused = await self._really_refused(refused) if refused else []
        if is_awake:
            parents = [parent for parent in parents if not is_awake(parent)]
        await self._wake(parents + waiting(settlements))
        return frozenset(lease.task for lease in refused)

    async def _settle(
        self,
        settlements: Sequence[tuple[Lease, Settlement]],
        by: str,
        default_tries: int,
        lapsed_only: bool = False,
    ) -> tuple[dict[UUID, str] | None, list[UUID]]:
        """What became of the accepted ones (None: all done), and the parents to wake."""
        if by == "holder" and len(settlements) == 1 and settlements[0][1].verdict is _DONE:
            ((lease, settlement),) = settlements
            one = {"id": lease.task, "grant": lease.grant, "result": settlement.result}
            held, parent = await self._end("settle_one", [lease.task], one)
            if held:
                return None, [] if parent is None else [self._driver.uuid(parent)]
        ask = asked(settlements, by, default_tries, lapsed_only)
        if Verdict.SNOOZED in (ask["verdicts"] or ()) and (anew := begun_anew(settlements)):
            return await self._settle_anew(settlements, anew, default_tries)
        return self._settled(await self._end("settle", ask["ids"], ask))

    async def _end(self, verb: str, ids: Sequence[UUID], ask: dict[str, Any]) -> Sequence[Any]:
        try:
            rows = await self._driver.call(verb, **ask)
        except MisplacedTask:
            # One bad row must not fail its batch for ever: its lease goes, and is lost.
            await self._driver.call("repair_leases", ids=ids)
            rows = await self._call(verb, **ask)
        answer: Sequence[Any] = rows[0]
        return answer

    async def _settle_anew(
        self,
        settlements: Sequence[tuple[Lease, Settlement]],
        anew: dict[Lease, bytes],
        default_tries: int,
    ) -> tuple[dict[UUID, str], list[UUID]]:
        """Those that go on as a new run each by itself, then the others."""
        accepted, parents = dict[UUID, str](), list[UUID]()
        for lease, payload in anew.items():
            ask = _restart(lease, payload, default_tries)
            row = await self._end("restart", [lease.task], ask)
            states, woken = self._settled(row)
            accepted |= states or {}
            parents += woken
        if others := [one for one in settlements if one[0] not in anew]:
            states, woken = await self._settle(others, "holder", default_tries)
            accepted |= {lease.task: "done" for lease, _ in others} if states is None else states
            parents += woken
        return accepted, parents

    async def _settle_on(
        self, conn: Any, settlements: Sequence[tuple[Lease, Settlement]], default_tries: int
    ) -> frozenset[UUID]:
        """All of them, or `LeaseLost`. What this lease settled before is lost to it as well: the
        rows that go with it were written then, and must not be written again."""
        verb, ask = "settle", asked(settlements, "holder", default_tries, lapsed_only=False)
        if anew := begun_anew(settlements):
            if len(settlements) > 1:
                raise InvalidInput("on a caller's connection a new run begins by itself")
            ((lease, payload),) = anew.items()
            verb, ask = "restart", _restart(lease, payload, default_tries)
        try:
            rows = await self._driver.call_on(conn, verb, **ask)
        except MisplacedTask:
            raise stands_twice() from None
        accepted, parents = self._settled(rows[0])
        if refused := left_out(settlements, accepted):
            if not self._driver.one_writer:  # else `transaction()` does it, after the rollback
                await self._really_refused(refused)
            raise LeaseLost("settle", refused[0].task, refused)
        if anew and accepted != {lease.task: "snoozed" for lease in anew}:
            raise TaskEnds("the task ends with this run: it was cancelled, or its time is over")
        wakes = frozenset(parents + waiting(settlements))
        if any(ours is conn for ours in self._owed):  # some libraries' connections have no hash
            self._owed[conn] |= wakes
        return wakes

    def _settled(self, row: Sequence[Any]) -> tuple[dict[UUID, str] | None, list[UUID]]:
        whole, accepted, states, parents = row
        if whole:
            return None, self._uuids(parents)
        ids = self._uuids(accepted)
        return dict(zip(ids, states or ["done"] * len(ids), strict=True)), self._uuids(parents)

    async def _really_refused(self, refused: list[Lease]) -> list[Lease]:
        """A settle that was already written by this lease was not refused."""
        rows = await self._call(
            "settled",
            ids=[lease.task for lease in refused],
            grants=[lease.grant for lease in refused],
        )
        before = set(self._uuids(row[0] for row in rows))
        refused = [lease for lease in refused if lease.task not in before]
        if refused:
            await self._refuse("settle", refused)
        return refused

    async def _wake(self, tasks: Iterable[UUID]) -> None:
        """Whoever waits and whoever wakes both look after their commit: one sees the other."""
        if ids := sorted(set(tasks)):
            await self._call("wake_up", ids=ids)


def _restart(lease: Lease, payload: bytes, default_tries: int) -> dict[str, Any]:
    """What the verb is asked with."""
    return {
        "id": lease.task,
        "grant": lease.grant,
        "payload": payload,
        "default_tries": default_tries,
    }
