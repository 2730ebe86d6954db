"""From what `serve()` was asked for to a worker at work."""

import asyncio
import contextlib
import logging
import os
import socket
from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.answers import WorkerRecord
from holdfast.app.executors import Executors
from holdfast.app.limits import Declaring
from holdfast.app.probes import probing
from holdfast.config import first
from holdfast.errors import HoldfastError, InvalidInput
from holdfast.executors.places import check_not_importing
from holdfast.flow.asking import Asking
from holdfast.flow.branches import watching
from holdfast.ids import new_worker_id
from holdfast.observer import Observer
from holdfast.observers.log import LogObserver
from holdfast.observers.many import Many
from holdfast.registry import Registry
from holdfast.tasks.durations import Duration, duration
from holdfast.tasks.lane import Serving
from holdfast.tasks.names import PRIORITY_RANGE, check_labels, check_number
from holdfast.upkeep.chores import Upkeeping, chores
from holdfast.upkeep.keeping import Chore, keep
from holdfast.upkeep.schedules import EVERY, Planner
from holdfast.upkeep.stuck import check_on_stuck
from holdfast.version import __version__
from holdfast.work.pace import Polling
from holdfast.work.status import WorkerLifecycle, WorkerState
from holdfast.work.worker import Settings, Worker

if TYPE_CHECKING:
    from holdfast.app.holdfast import Holdfast

__all__ = ["Served", "serve"]

logger = logging.getLogger("holdfast.worker")
_LEASE = timedelta(minutes=5)
_RECOVERY = timedelta(seconds=30)


class Served(msgspec.Struct, frozen=True, kw_only=True):
    """What `serve()` was told; None where the constructor or the environment decide."""

    worker_id: str | None = None
    queues: Any = None
    tags: Any = None
    capabilities: Any = None
    tenants: Any = None
    max_concurrency: int | None = None
    poll_interval: float | None = None
    poll_interval_max: float | None = None
    poll_backoff_factor: float | None = None
    lease_duration: Duration | None = None
    heartbeat_interval: Duration | None = None
    recovery_interval: Duration | None = None
    cleanup_interval: Duration | None = None
    retention_period: Duration | None = None
    dead_letter_retention: Duration | None = None
    drain_timeout: Duration | None = None
    worker_priority: int | None = None
    priority_grace: Duration | None = None
    stuck_after: Duration | None = None
    on_stuck: str | None = None
    spawn_suspects: bool | None = None
    health_host: str | None = None
    health_port: int | None = None
    functions: Any = None  # a registry of its own: it serves nothing else


async def serve(app: "Holdfast", wanted: Served, lifecycle: WorkerLifecycle | None) -> None:
    name = wanted.worker_id or app.config.worker_id or f"{socket.gethostname()}:{os.getpid()}"
    lifecycle = lifecycle or WorkerLifecycle(str(name))
    if lifecycle.state is not WorkerState.STARTING:
        raise HoldfastError(
            f"this lifecycle is of a worker that is {lifecycle.state} already; make another one, "
            "by app.create_worker_lifecycle(), for each serve()"
        )
    lifecycle.name = lifecycle.name or str(name)
    app.follow(lifecycle)
    try:  # whoever waits until it is ready hears of all that it fails with
        check_not_importing()
        if not isinstance(name, str):
            raise InvalidInput(f"worker_id must be a text, got {name!r:.80}")
        host = first(first(wanted.health_host, app.config.health_host), "127.0.0.1")
        port = first(wanted.health_port, app.config.health_port)
        if port is not None:
            check_number("health_port", port, 0, 65_535)
        with probing(lifecycle, host, port, app.config.api_key) as more:
            await _serve(app, wanted, lifecycle, name, [*app.observers, *more])
    except Exception as error:
        lifecycle.failure = error
        raise
    finally:
        lifecycle.move(WorkerState.STOPPED)


async def _serve(
    app: "Holdfast",
    wanted: Served,
    lifecycle: WorkerLifecycle,
    name: str,
    observers: Sequence[Observer],
) -> None:
    settings, upkeeping = _settings(app, wanted), _upkeeping(app, wanted)
    who = _filters(app, wanted)
    functions: Registry = app.functions if wanted.functions is None else wanted.functions
    record = _record(name, wanted, settings, who, app)
    told = [observer.for_worker(name, lifecycle.overview) for observer in observers]
    observer = Many([LogObserver(name, app.home.clock), *told])
    spawns = bool(wanted.spawn_suspects) and not app.home.is_in_memory
    executors = Executors(freed=lambda: worker.freed(), spawn_suspects=spawns)
    try:
        client = await app.home.client()
        limits = Declaring(client.store, lambda: functions)
        await limits.declare()
        worker = Worker(
            store=client.store,
            opening=app.home.apart,
            notifier=app.home.notifier(),
            observer=observer,
            clock=app.home.clock,
            record=record,
            settings=settings,
            functions=functions.all,
            executors=executors,
            serving=_Who(who, functions).now,
            declare=limits.declare,
            begin_flow=Asking,
            lifecycle=lifecycle,
        )
        lifecycle.follow(worker.facts)
        heard = Many([observer, worker.vitals])
        duties = chores(client.store, heard, upkeeping, worker.work_came)
        duties.append(Chore("schedules", EVERY, Planner(client, lambda: functions).sweep))
        keeping = asyncio.create_task(keep(duties))
        try:
            with watching():
                await worker.run()
        finally:
            keeping.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await keeping
    finally:
        await executors.close()


def _settings(app: "Holdfast", wanted: Served) -> Settings:
    config = app.config
    slots = first(wanted.max_concurrency, config.concurrency)
    return Settings(
        slots=check_number(
            "max_concurrency", first(slots, 1 if config.worker_type else 10), 1, 100_000
        ),
        polling=_polling(app, wanted),
        lease=_lease(app, wanted),
        renew_every=_span(
            "heartbeat_interval", wanted.heartbeat_interval, config.heartbeat_interval
        ),
        drain_timeout=_span_or(
            timedelta(seconds=30), "drain_timeout", wanted.drain_timeout, config.drain_timeout
        ),
        default_tries=app.default_tries,
        grace=_span_or(
            timedelta(milliseconds=50),
            "priority_grace",
            wanted.priority_grace,
            config.priority_grace,
        ),
        redact=config.redact,
        task_logs=config.task_logs,
    )


def _polling(app: "Holdfast", wanted: Served) -> Polling:
    least, most, factor = app.polling
    default = Polling()
    least = first(_number("poll_interval", first(wanted.poll_interval, least)), default.least)
    most = _number("poll_interval_max", first(wanted.poll_interval_max, most))
    factor = _number("poll_backoff_factor", first(wanted.poll_backoff_factor, factor))
    return Polling(
        least=least,
        most=first(most, max(least, default.most)),
        factor=first(factor, default.factor),
    )


def _lease(app: "Holdfast", wanted: Served) -> timedelta:
    return _span_or(_LEASE, "lease_duration", wanted.lease_duration, app.config.lease)


def _upkeeping(app: "Holdfast", wanted: Served) -> Upkeeping:
    config = app.config
    return Upkeeping(
        recovery_interval=_span_or(
            min(_RECOVERY, _lease(app, wanted) / 5),
            "recovery_interval",
            wanted.recovery_interval,
            config.recovery_interval,
        ),
        cleanup_interval=_span_or(
            timedelta(hours=1),
            "cleanup_interval",
            wanted.cleanup_interval,
            config.cleanup_interval,
        ),
        retention=_span_or(
            timedelta(days=7), "retention_period", wanted.retention_period, config.retention
        ),
        dead_letter_retention=_span(
            "dead_letter_retention", wanted.dead_letter_retention, config.dead_letter_retention
        ),
        default_tries=app.default_tries,
        stuck_after=_span("stuck_after", wanted.stuck_after, config.stuck_after),
        on_stuck=check_on_stuck(first(wanted.on_stuck, config.on_stuck)),
    )


def _filters(app: "Holdfast", wanted: Served) -> Serving:
    config = app.config
    own = None if config.worker_type is None else (config.worker_type,)
    return Serving(
        queues=_some("queue", wanted.queues, first(config.queues, own)),
        tags=_some("tag", wanted.tags, config.tags),
        capabilities=_labels("capability", wanted.capabilities, config.capabilities) or frozenset(),
        tenants=_some("tenant", wanted.tenants, config.tenants),
    )


class _Who:
    """The filters with all functions that are known by now."""

    def __init__(self, who: Serving, functions: Registry) -> None:
        self._serving, self._functions = who, functions
        self._of: Any = None

    def now(self) -> Serving:
        known = self._functions.all()
        if known is not self._of:
            self._of = known
            self._serving = msgspec.structs.replace(self._serving, types=frozenset(known))
        return self._serving


def _record(
    name: str,
    wanted: Served,
    settings: Settings,
    who: Serving,
    app: "Holdfast",
) -> WorkerRecord:
    priority = wanted.worker_priority
    return WorkerRecord(
        id=new_worker_id(),
        name=name,
        host=socket.gethostname(),
        pid=os.getpid(),
        version=__version__,
        queues=tuple(sorted(who.queues or ())),
        tags=tuple(sorted(who.tags or ())),
        capabilities=tuple(sorted(who.capabilities)),
        tenants=tuple(sorted(who.tenants or ())),
        group_id=first(app.config.group_id, app.config.worker_type) or "",
        slots=settings.slots,
        priority=check_number(
            "worker_priority", first(priority, app.config.worker_priority), *PRIORITY_RANGE
        ),
        status="starting",
    )


def _labels(
    what: str, given: Iterable[str] | None, configured: Iterable[str] | None
) -> frozenset[str] | None:
    labels = configured if given is None else given
    return None if labels is None else frozenset(check_labels(what, labels))


def _some(
    what: str, given: Iterable[str] | None, configured: Iterable[str] | None
) -> frozenset[str] | None:
    """An empty list would be a worker that takes nothing, and looks like one that takes all."""
    found = _labels(what, given, configured)
    if found is not None and not found:
        raise InvalidInput(f"{what}s= is an empty list; name some {what}s, or leave it out for all")
    return found


def _number(what: str, value: Any) -> float | None:
    if value is not None and (isinstance(value, bool) or not isinstance(value, int | float)):
        raise InvalidInput(f"{what} must be a number, got {value!r:.80}")
    return None if value is None else float(value)


def _span(what: str, given: Duration | None, configured: timedelta | None) -> timedelta | None:
    return configured if given is None else duration(what, given)


def _span_or(
    default: timedelta, what: str, given: Duration | None, configured: timedelta | None
) -> timedelta:
    """Nothing at all is a span too."""
    span = _span(what, given, configured)
    return default if span is None else span
