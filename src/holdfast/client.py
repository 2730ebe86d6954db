"""Dispatch, await, cancel, retry: what code that is not a worker does with tasks."""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta
from hashlib import blake2b
from typing import Any, Generic, TypeVar
from uuid import UUID

import msgspec

from holdfast import tracing
from holdfast.answers import Cancelling, Editing, Ending
from holdfast.context import Context, entered
from holdfast.errors import (
    InvalidInput,
    PayloadRefused,
    StoreUnreachable,
    TaskCancelled,
    TaskFailed,
)
from holdfast.function import Call, Function
from holdfast.ids import derived_id, new_id
from holdfast.notifier import EVERYTHING, Hint, Notifier
from holdfast.store import Store
from holdfast.tasks.cron import Cron
from holdfast.tasks.edit import Edit
from holdfast.tasks.payload import decode, encode
from holdfast.tasks.task import Draft, Task, TaskStatus

__all__ = ["AnyTask", "Client", "TaskHandle", "task_id"]

R = TypeVar("R")
_FIRST_LOOK, _LONGEST_PAUSE = 0.002, 0.5
_LAST_LOOK = 0.05  # seconds before the time is over: what ended by then is known


class TaskHandle(Generic[R]):
    """A task that was dispatched."""

    __slots__ = ("_client", "_function", "id")

    def __init__(self, client: "Client", id: UUID, function: Function[..., Any, R] | None) -> None:
        self._client, self.id, self._function = client, id, function

    def __repr__(self) -> str:
        return f"<task {self.id}>"

    async def result(self, timeout: float | timedelta | None = None) -> R:
        """Its result, once it has ended. Raises `TaskFailed`, `TaskCancelled` or `TimeoutError`."""
        ending = await self._client.wait_for(self.id, timeout=timeout)
        value: R = result_of(self.id, ending, self._function)
        return value

    async def state(self) -> Task:
        return await self._client.state_of(self.id)

    async def cancel(self) -> Cancelling:
        """`cancelled`: it will never start; `requested`: its worker is told."""
        return await self._client.cancel(self.id)


AnyTask = TaskHandle[Any] | UUID | str


class Client:
    """One store, seen by those who bring tasks and look after them."""

    def __init__(
        self,
        store: Store,
        notifier: Notifier,
        told: Callable[[Sequence[Draft]], None] | None = None,
    ) -> None:
        """`told` hears of what was accepted."""
        self.store, self._notifier, self._told = store, notifier, told

    def as_tenant(self, tenant: str | None) -> "Client":
        """In the name of one tenant, or of all: see `Store.as_tenant`."""
        return Client(self.store.as_tenant(tenant), self._notifier, self._told)

    async def dispatch(self, call: Call[R]) -> TaskHandle[R]:
        (handle,) = await self.dispatch_many([call])
        return handle

    async def dispatch_many(self, calls: Iterable[Call[R]]) -> list[TaskHandle[R]]:
        """All of them or none, in one statement."""
        made = [(call, _checked(call).draft()) for call in calls]
        conns = {id(call.function.wishes.conn): call.function.wishes.conn for call, _ in made}
        if len(conns) > 1:
            raise InvalidInput("calls that are dispatched together must share one conn=")
        (conn,) = conns.values() or (None,)
        drafts = [draft for _, draft in made]
        context = entered()
        if context is None or conn is not None:
            ids = await self.enqueue(drafts, conn=conn)
        else:
            ids = await self._enqueue_once(context, drafts)
        return [
            TaskHandle(self, task, call.function) for task, (call, _) in zip(ids, made, strict=True)
        ]

    async def _enqueue_once(self, context: Context, drafts: Sequence[Draft]) -> list[UUID]:
        """From inside a function: where its worker dies afterwards, it is not done again."""

        def name(base: UUID) -> list[UUID]:
            return [derived_id(base, number) for number in range(len(drafts))]

        async def do(base: UUID | None) -> bytes:
            named = drafts
            if base is not None:
                named = [
                    msgspec.structs.replace(draft, id=id)
                    for draft, id in zip(drafts, name(base), strict=True)
                ]
            return encode(await self.enqueue(named))

        said = blake2b(digest_size=16)
        for draft in drafts:
            whose = f"{draft.tenant} {draft.user_id}"
            said.update(f"{draft.queue} {whose} {draft.key} {draft.version}".encode())
            said.update(draft.fingerprint)
        keyed = any(draft.key is not None for draft in drafts)
        derive = None if keyed else lambda base: encode(name(base))
        types = ", ".join(dict.fromkeys(draft.type for draft in drafts))
        done = await context.once(f"dispatch {types}"[:200], said.hexdigest(), do, derive)
        ids: list[UUID] = decode(done, list[UUID])
        return ids

    async def enqueue(self, drafts: Sequence[Draft], *, conn: Any = None) -> list[UUID]:
        with tracing.sending(drafts) as traced:
            ids = await self._accept(traced, conn)
        if conn is None:  # the caller's transaction carries its own hints, and may not commit
            self._accepted([d for d, id in zip(drafts, ids, strict=True) if d.id == id])
        return ids

    async def plan(
        self, type: str, cron: Cron, *, seen: datetime, next: datetime, drafts: Sequence[Draft]
    ) -> bool:
        """Tasks of a function that runs by the clock: see `Store.plan`."""
        with tracing.sending(drafts) as traced:
            moved = await self.store.plan(type, cron, seen=seen, next=next, drafts=traced)
        if moved:
            self._accepted(drafts)
        return moved

    def _accepted(self, drafts: Sequence[Draft]) -> None:
        if self._told:
            self._told(drafts)
        # Also of what is not due yet: whoever rests shall not rest past it.
        self._notifier.tell(Hint("work", queue) for queue in {d.queue for d in drafts})

    async def _accept(self, drafts: Sequence[Draft], conn: Any) -> list[UUID]:
        if conn is not None:
            return await self.store.enqueue(drafts, conn=conn)
        try:
            return await self.store.enqueue(drafts)
        except StoreUnreachable:
            # Their ids are made here: asking once more is harmless if it was written after all.
            await asyncio.sleep(0.1)
            return await self.store.enqueue(drafts)

    async def state_of(self, task: AnyTask) -> Task:
        return await self.store.get(task_id(task))

    async def wait_for(self, task: AnyTask, *, timeout: float | timedelta | None = None) -> Ending:
        """How it ended, once it has."""
        id, pause = task_id(task), _FIRST_LOOK
        seconds = timeout.total_seconds() if isinstance(timeout, timedelta) else timeout
        over = asyncio.timeout(seconds)
        try:
            async with over:
                while True:
                    try:
                        if ending := await self.store.ending(id):
                            return ending
                    except StoreUnreachable:
                        pause = _LONGEST_PAUSE
                    await asyncio.sleep(min(pause, _until_the_last_look(over.when())))
                    pause = min(pause * 1.3, _LONGEST_PAUSE)
        except TimeoutError:
            if not over.expired():
                raise
            raise TimeoutError(
                f"task {id} has not ended within {seconds:g} s; app.explain(task) says why"
            ) from None

    async def cancel(self, task: AnyTask) -> Cancelling:
        id = task_id(task)
        answer = (await self.store.cancel([id]))[id]
        if answer == "requested":
            self._notifier.tell([Hint("cancel", str(id))])
        return answer

    async def edit(self, task: UUID, edit: Edit, *, seen: Task | None = None) -> Editing:
        """Change what has not begun: see `Store.edit`."""
        answer = await self.store.edit(task, edit, seen=seen)
        if answer == "edited":
            self._notifier.tell([EVERYTHING])
        return answer

    async def send_signal(
        self,
        task: "TaskHandle[Any] | UUID | str",
        name: str,
        payload: Any = None,
        *,
        signal: UUID | None = None,
    ) -> bool:
        """Queue a signal for a durable function; False: it has ended. `signal`: its id, where the
        caller has one: the same is sent once. Raises `UnknownTask`."""
        id, data = task_id(task), encode(payload)

        async def do(base: UUID | None) -> bytes:
            return encode(await self._send(id, base or new_id(), name, data))

        if signal is not None or (context := entered()) is None:
            return await self._send(id, signal or new_id(), name, data)
        said = blake2b(f"{id} {name} ".encode() + data, digest_size=16).hexdigest()
        sent: bool = decode(await context.once(f"send {name}"[:200], said, do), bool)
        return sent

    async def _send(self, id: UUID, signal: UUID, name: str, data: bytes) -> bool:
        try:
            sent = await self.store.send_signal(id, signal, name, data)
        except StoreUnreachable:  # sent twice is sent once: its id is made here
            await asyncio.sleep(0.1)
            sent = await self.store.send_signal(id, signal, name, data)
        if sent:
            self._notifier.tell([Hint("wake", str(id))])
        else:
            await self.store.get(id)  # one that nobody knows has not ended
        return sent

    def tell(self, hints: Iterable[Hint]) -> None:
        self._notifier.tell(hints)

    async def retry(self, tasks: Sequence[AnyTask]) -> frozenset[UUID]:
        """A new life for what failed or was cancelled; what waits for its time goes ahead."""
        moved = await self.store.retry([task_id(task) for task in tasks])
        if moved:
            self._notifier.tell([EVERYTHING])
        return moved


def _checked(call: Any) -> Call[Any]:
    if not isinstance(call, Call):
        if asyncio.iscoroutine(call):
            call.close()  # else Python complains that nobody awaited it
        raise InvalidInput(
            f"{call!r:.80} is not a call to be dispatched; write f.call(7) for each: "
            "app.dispatch_many([f.call(n) for n in range(3)])"
        )
    return call


def _until_the_last_look(over: float | None) -> float:
    if over is None:
        return _LONGEST_PAUSE
    return max(over - asyncio.get_running_loop().time() - _LAST_LOOK, _LAST_LOOK / 2)


def task_id(task: AnyTask) -> UUID:
    match task:
        case TaskHandle():
            return task.id
        case UUID():
            return task
        case str():
            try:
                return UUID(task)
            except ValueError:
                raise InvalidInput(f"{task!r:.80} is not the id of a task") from None
        case _:
            raise InvalidInput(f"{task!r:.80} is not a task: give its handle or its id")


def result_of(task: UUID, ending: Ending, function: Function[..., Any, Any] | None) -> Any:
    """The value that a task came to, or the error that says why there is none."""
    match ending.status:
        case TaskStatus.DONE:
            data = ending.result if ending.result is not None else b"null"
            if function is None:
                return decode(data)
            try:
                return function.signature.result(data)
            except PayloadRefused as error:
                raise PayloadRefused(
                    f"task {task} is done, but its result does not fit what {function.name} says "
                    f"that it returns: {error}; correct the annotation or the function"
                ) from None
        case TaskStatus.CANCELLED:
            raise TaskCancelled(task)
        case _:
            failure = ending.failure
            if failure is None:
                raise TaskFailed(task, "unknown", "no error was recorded")
            raise TaskFailed(task, failure.type, failure.message, failure.traceback)
