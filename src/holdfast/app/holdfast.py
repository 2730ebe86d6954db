"""The app: one store, the functions that its workers know, and what people do with both."""

import asyncio
import contextlib
import logging
import os
from collections.abc import AsyncIterator, Coroutine, Iterable
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from holdfast import config
from holdfast.app.backends import Backend, Backends, Notifications, RedisBackend
from holdfast.app.home import Home, plain_url
from holdfast.app.inside import Inside
from holdfast.app.operating import Operating
from holdfast.app.portal import Portal
from holdfast.app.releasing import ending
from holdfast.client import AnyTask, Client, TaskHandle, task_id
from holdfast.clock import Clock, SystemClock
from holdfast.context import entered
from holdfast.errors import InvalidInput, LeaseLost
from holdfast.function import Call, Function
from holdfast.observer import MetricsRecorder, Observer
from holdfast.observers.many import Many
from holdfast.observers.recorder import Recording
from holdfast.registry import Durable, Registry, durable, functions
from holdfast.tasks.durations import Duration
from holdfast.work.status import WorkerLifecycle, WorkerState

if TYPE_CHECKING:
    from holdfast.desk.caller import Caller
    from holdfast.desk.local import LocalDesk
    from holdfast.sealing import KeyRing

__all__ = ["Holdfast"]

P = ParamSpec("P")
T = TypeVar("T")
R = TypeVar("R")

logger = logging.getLogger("holdfast")
_DEFAULT = "sqlite:///holdfast.db"
_NOT_ITSELF = "only the running attempt itself may, inside its function and under its worker's name"


class Holdfast(Inside, Operating):
    """Durable tasks on one store.

    >>> app = Holdfast()                                # a file, holdfast.db
    >>> app = Holdfast("postgresql://user@host/db")     # many machines
    """

    backends = Backends
    notifications = Notifications
    durable: Durable = durable

    def __init__(
        self,
        store: str | None = None,
        *,
        backend: Backend | None = None,
        notification_backend: RedisBackend | None = None,
        poll_min_interval: float | None = None,
        poll_max_interval: float | None = None,
        poll_backoff_factor: float | None = None,
        metrics: MetricsRecorder | None = None,
        observers: Iterable[Observer] = (),
        clock: Clock | None = None,
        encryption: "KeyRing | None" = None,
        pool_size: int | None = None,
    ) -> None:
        """`pool_size`: how many functions may have a `current().transaction()` open at once, each
        on a connection of its own; 32 unless told otherwise. For PostgreSQL."""
        if store is not None and backend is not None:
            raise InvalidInput("give the store as a URL or as a backend, not both")
        _check_places(store, backend, notification_backend)
        self.config = config.read(os.environ)
        self.functions = Registry(below=functions)
        self.durable = self.functions.durable
        url = store or (backend and backend.url) or self._from_environment()
        redis = notification_backend
        if redis is None and self.config.redis_url:
            redis = RedisBackend(self.config.redis_url)
        self.observers: tuple[Observer, ...] = tuple(observers)
        if metrics is not None:
            self.observers += (Recording(metrics),)
        self.home = Home(
            url,
            redis=redis,
            clock=clock or SystemClock(),
            auto_migrate=self.config.auto_migrate,
            told=Many(self.observers).enqueued if self.observers else None,
            ring=encryption or self._ring(),
            pool_size=config.first(pool_size, self.config.pool_size),
        )
        self.polling = (
            config.first(poll_min_interval, self.config.poll_min),
            config.first(poll_max_interval, self.config.poll_max),
            config.first(poll_backoff_factor, self.config.poll_backoff_factor),
        )
        self._portal = Portal()
        self._lifecycles: list[WorkerLifecycle] = []

    def _ring(self) -> "KeyRing | None":
        if self.config.encryption_keys is None:
            return None
        from holdfast.sealing import KeyRing

        return KeyRing.parse(self.config.encryption_keys)

    def _from_environment(self) -> str:
        url = self.config.store or _DEFAULT
        origin = self.config.origin.get("store")
        scheme = url.partition("://")[0].partition("+")[0]
        if origin == "DATABASE_URL" and scheme not in ("postgresql", "postgres", "sqlite"):
            logger.warning("DATABASE_URL is no store of ours; using %s", _DEFAULT)
            return _DEFAULT
        if origin == "DATABASE_URL":
            url = f"{scheme}://{url.partition('://')[2]}"
        logger.info("the store is %s, from %s", plain_url(url), origin or "the default")
        return url

    def move(
        self,
        *,
        store: str | None = None,
        redis_url: str | None = None,
        pool_size: int | None = None,
    ) -> None:
        """Live elsewhere than the code says, as the command line may ask. Before the first use."""
        redis = RedisBackend(redis_url) if redis_url else self.home.redis
        self.home = Home(
            store or self.home.url,
            redis=redis,
            clock=self.home.clock,
            auto_migrate=self.config.auto_migrate,
            told=self.home.told,
            ring=self.home.ring,
            pool_size=config.first(pool_size, self.home.pool_size),
        )

    async def __aenter__(self) -> "Holdfast":
        await self.home.client()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close what this app has opened, after its workers have drained."""
        for lifecycle in self._lifecycles:
            if lifecycle.state in (WorkerState.READY, WorkerState.DRAINING):
                lifecycle.request_drain()
                await lifecycle.wait_until_stopped()
        await asyncio.to_thread(self._portal.close, self.home.close())
        await self.home.close()

    # ── tasks ────────────────────────────────────────────────────────────────────────────────

    async def dispatch(
        self, function: Function[P, Any, R], /, *args: P.args, **kwargs: P.kwargs
    ) -> TaskHandle[R]:
        """Make a task of this call. It is on disk when this returns."""
        return await (await self._client()).dispatch(_call(function, args, kwargs))

    async def dispatch_many(self, calls: Iterable[Call[R]]) -> list[TaskHandle[R]]:
        """All of them or none, in one statement: `[charge.call(i) for i in range(1000)]`."""
        return await (await self._client()).dispatch_many(calls)

    def dispatch_sync(
        self, function: Function[P, Any, R], /, *args: P.args, **kwargs: P.kwargs
    ) -> TaskHandle[R]:
        """The same for code that does not await."""
        call = _call(function, args, kwargs)
        conn = call.function.wishes.conn
        if conn is None:
            return self._portal.run(self._dispatch(call))
        prepared = self._portal.run(self._prepare(call))
        (task,) = prepared.write(conn)
        return TaskHandle(self._portal.run(self._client()), task, call.function)

    async def _dispatch(self, call: Call[R]) -> TaskHandle[R]:
        return await (await self._client()).dispatch(call)

    async def _prepare(self, call: Call[Any]) -> Any:
        return await (await self._client()).store.prepare([call.draft()])

    @contextlib.asynccontextmanager
    async def transaction(self) -> AsyncIterator[Any]:
        """A transaction on the store's own database: dispatch in it with `conn=` what this yields,
        which on SQLite is the only thing that `conn=` takes. Keep it short: there, everyone else
        waits."""
        async with (await self._client()).store.transaction() as conn:
            yield conn

    def run_sync(self, work: Coroutine[Any, Any, T]) -> T:
        """Wait for any of the app's coroutines in code that does not await:
        `app.run_sync(task.result(timeout=30))`."""
        return self._portal.run(work)

    # ── from inside tasks ────────────────────────────────────────────────────────────────────

    async def update_progress(
        self, task: AnyTask, percent: float, message: str | None = None
    ) -> None:
        """For the running attempt itself: whoever is not it cannot report."""
        context = entered()
        if context is None or context.task_id != task_id(task):
            raise LeaseLost("progress", task_id(task), why=_NOT_ITSELF)
        await context.progress(percent, message)

    async def release_lease(
        self, task: AnyTask, worker_id: str, status: str, error: str | None = None
    ) -> None:
        """For the running attempt itself: end it now, as `done`, `failed` or `retry`. Raises
        `LeaseLost` where it is not this attempt's lease, or not any more."""
        context = entered()
        if context is None or (context.task_id, context.worker_id) != (task_id(task), worker_id):
            raise LeaseLost("release", task_id(task), why=_NOT_ITSELF)
        await context.release(ending(status, error))

    async def desk(
        self, caller: "Caller | None" = None, client: Client | None = None
    ) -> "LocalDesk":
        """What people and programs outside may ask, for one caller; by default for this process.
        `client`: by whom it asks, where that is not the app's own."""
        from holdfast.desk.caller import Caller
        from holdfast.desk.local import LocalDesk
        from holdfast.redaction import Redaction

        return LocalDesk(
            client or await self._client(),
            self.functions,
            caller or Caller(name=f"process {os.getpid()}"),
            observer=Many(self.observers),
            default_tries=self.default_tries,
            redaction=Redaction(self.config.redact),
        )

    def asgi(self, **options: Any) -> Any:
        """The HTTP API as an ASGI application, for a server or to be mounted in another one. Needs
        `holdfast[server]`. Closed by default: without a key (`api_key=`, HOLDFAST_API_KEY) it
        answers this machine only."""
        from holdfast.app.faces import face

        return face("api").make_api(self, **options)

    async def send_signal(self, task: AnyTask, name: str, payload: Any = None) -> bool:
        """Queue a signal for a durable function: each is consumed once, in order, also where it
        comes before anybody waits for it. False: the task has ended. Raises `UnknownTask`."""
        return await (await self._client()).send_signal(task, name, payload)

    # ── workers ──────────────────────────────────────────────────────────────────────────────

    @property
    def default_tries(self) -> int:
        return config.first(self.config.max_tries, 3)

    async def serve(
        self,
        *,
        worker_id: str | None = None,
        queues: Iterable[str] | None = None,
        tags: Iterable[str] | None = None,
        capabilities: Iterable[str] | None = None,
        tenants: Iterable[str] | None = None,
        max_concurrency: int | None = None,
        poll_interval: float | None = None,
        poll_interval_max: float | None = None,
        poll_backoff_factor: float | None = None,
        lease_duration: Duration | None = None,
        heartbeat_interval: Duration | None = None,
        recovery_interval: Duration | None = None,
        cleanup_interval: Duration | None = None,
        retention_period: Duration | None = None,
        dead_letter_retention: Duration | None = None,
        drain_timeout: Duration | None = None,
        worker_priority: int | None = None,
        priority_grace: Duration | None = None,
        stuck_after: Duration | None = None,
        on_stuck: str | None = None,
        spawn_suspects: bool = False,
        health_host: str | None = None,
        health_port: int | None = None,
        lifecycle: WorkerLifecycle | None = None,
    ) -> None:
        """Work, until asked to drain (`request_worker_drain`) or cancelled.

        `spawn_suspects`: tasks that were lost together with a dead worker twice run in processes of
        their own from then on, side by side; else one after the other in an emptied worker. For
        programs whose functions need nothing but what importing them brings (`holdfast worker`
        sets it).

        `health_port`: serve /health, /livez, /readyz, /startupz, /metrics and /worker/stats there.
        """
        from holdfast.app.serving import Served, serve  # which those who only dispatch never need

        wanted = Served(
            worker_id=worker_id or (lifecycle.name if lifecycle else None),
            queues=queues,
            tags=tags,
            capabilities=capabilities,
            tenants=tenants,
            max_concurrency=max_concurrency,
            poll_interval=poll_interval,
            poll_interval_max=poll_interval_max,
            poll_backoff_factor=poll_backoff_factor,
            lease_duration=lease_duration,
            heartbeat_interval=heartbeat_interval,
            recovery_interval=recovery_interval,
            cleanup_interval=cleanup_interval,
            retention_period=retention_period,
            dead_letter_retention=dead_letter_retention,
            drain_timeout=drain_timeout,
            worker_priority=worker_priority,
            priority_grace=priority_grace,
            stuck_after=stuck_after,
            on_stuck=on_stuck,
            spawn_suspects=spawn_suspects,
            health_host=health_host,
            health_port=health_port,
        )
        await serve(self, wanted, lifecycle)

    def create_worker_lifecycle(self, name: str | None = None) -> WorkerLifecycle:
        """A handle on a worker to come: pass it to `serve(lifecycle=...)`."""
        lifecycle = WorkerLifecycle(name or self.config.worker_id or "")
        self.follow(lifecycle)
        return lifecycle

    def follow(self, lifecycle: WorkerLifecycle) -> None:
        """Those that stopped before are forgotten: a process that ends and starts workers all the
        time would tell of ever more of them."""
        if lifecycle not in self._lifecycles:
            going = [one for one in self._lifecycles if one.state is not WorkerState.STOPPED]
            self._lifecycles = [*going, lifecycle]

    def request_worker_drain(self, lifecycle: WorkerLifecycle) -> None:
        lifecycle.request_drain()

    def worker_status_overview(self) -> dict[str, Any]:
        """`ready`: some worker of this process has started and has not ended; `draining`: some
        worker is leaving, and takes no more tasks. One that stopped is told of until the next
        one comes."""
        states = [lifecycle.state for lifecycle in self._lifecycles]
        return {
            "ready": WorkerState.READY in states or WorkerState.DRAINING in states,
            "draining": WorkerState.DRAINING in states
            or any(
                one.drain_requested and one.state is not WorkerState.STOPPED
                for one in self._lifecycles
            ),
            "workers": [one.overview() for one in self._lifecycles],
        }

    @classmethod
    @contextlib.asynccontextmanager
    async def bootstrap(
        cls, backend: Backend | str | None = None, *, serve: bool = False, **options: Any
    ) -> AsyncIterator["Holdfast"]:
        """An app that is ready to use, with a worker beside it if asked for, which `options` are
        for, as in `serve`; all of it is closed at the end of the block."""
        if options and not serve:
            named = ", ".join(sorted(options))
            raise InvalidInput(f"{named} of bootstrap() are for its worker: give serve=True too")
        app = cls(backend) if isinstance(backend, str | None) else cls(backend=backend)
        async with app:
            if not serve:
                yield app
                return
            lifecycle = app.create_worker_lifecycle()
            working = asyncio.create_task(app.serve(lifecycle=lifecycle, **options))
            try:
                ready = asyncio.create_task(lifecycle.wait_until_ready())
                await asyncio.wait({working, ready}, return_when=asyncio.FIRST_COMPLETED)
                ready.cancel()
                await asyncio.wait({ready})
                if working.done():
                    working.result()
                yield app
            finally:
                lifecycle.request_drain()
                await working

    async def _client(self) -> Client:
        return await self.home.client()


def _check_places(store: Any, backend: Any, redis: Any) -> None:
    if not isinstance(store, str | None):
        raise InvalidInput(f"the store is a URL; write backend= for {store!r:.80}")
    if not isinstance(backend, Backend | None):
        raise InvalidInput(
            f"backend= takes Holdfast.backends.PostgresBackend(url) or SQLiteBackend(path), got "
            f"{type(backend).__name__}; a URL goes first, without a name"
        )
    if not isinstance(redis, RedisBackend | None):
        raise InvalidInput(
            "notification_backend= takes Holdfast.notifications.RedisBackend(url), got "
            f"{type(redis).__name__}"
        )


def _call(
    function: Function[..., Any, R], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Call[R]:
    if isinstance(function, Function):
        return Call(function, args, kwargs)
    if isinstance(function, Call):
        raise InvalidInput("a call is dispatched with others: app.dispatch_many([f.call(7), ...])")
    if asyncio.iscoroutine(function):
        function.close()  # else Python complains that nobody awaited it
        raise InvalidInput("this was called already; dispatch(f, 7) instead of dispatch(f(7))")
    raise InvalidInput(
        f"{function!r:.80} is not a durable function; put @durable above its definition"
    )
