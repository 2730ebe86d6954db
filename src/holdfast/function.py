"""A durable function: its signature, what it is, and the tasks that are made of it."""

import inspect
from collections.abc import Callable, Coroutine, Generator, Iterable, Mapping
from datetime import datetime, timedelta
from functools import update_wrapper
from hashlib import sha256
from types import CodeType
from typing import Any, Generic, Literal, ParamSpec, TypeVar

import msgspec

from holdfast.context import Asking, running
from holdfast.errors import HoldfastError, InvalidInput
from holdfast.ids import new_id
from holdfast.sources import remember
from holdfast.tasks.cron import Cron
from holdfast.tasks.durations import Duration, duration
from holdfast.tasks.limits import Limit, Rate
from holdfast.tasks.names import (
    check_expires,
    check_instant,
    check_key,
    check_labels,
    check_name,
    check_priority,
    check_tries,
    check_user_id,
)
from holdfast.tasks.payload import encode
from holdfast.tasks.retry import RetryPolicy
from holdfast.tasks.signature import Signature
from holdfast.tasks.task import Claimed, Draft, fingerprint

__all__ = ["Call", "Function", "Isolation", "KeyFunction", "Soon", "Traits", "Wishes"]

P = ParamSpec("P")
T = TypeVar("T")  # what calling the function itself gives: a coroutine, or its result
R = TypeVar("R")  # what the task results in
Isolation = Literal["process"]
KeyFunction = Callable[..., str]
# What is awaited. Without Any, which makes type checkers give up on overloads such as gather's.
Soon = Coroutine[object, None, R]


class Traits(msgspec.Struct, frozen=True, kw_only=True):
    """What a function is, the same for all of its tasks."""

    version: str = ""
    max_concurrent: int | None = None
    max_concurrent_total: int | None = None
    concurrency_key: str | None = None
    rate_limit: str | None = None
    retry_policy: RetryPolicy | None = None
    timeout: timedelta | None = None
    idempotent: bool = False
    idempotency_key_func: KeyFunction | None = None
    cached: timedelta | None = None
    isolation: Isolation | None = None
    memory_limit: int | None = None
    cpu_limit: float | None = None
    fenced: bool = False
    cron: Cron | None = None

    @property
    def runs_once(self) -> bool:
        """One task for equal arguments, however it ends; with `cached`, its result is everybody's
        for as long as it is kept."""
        return self.idempotent or self.idempotency_key_func is not None

    @property
    def shares(self) -> bool:
        """Several may wait for the end of one task."""
        return self.runs_once or self.cached is not None

    @property
    def limit(self) -> Limit | None:
        """With a concurrency key, `max_concurrent` counts for each of its values."""
        keyed = self.concurrency_key is not None
        limit = Limit(
            max_running=self.max_concurrent_total if keyed else self.max_concurrent,
            max_per_key=self.max_concurrent if keyed else None,
            rate=None if self.rate_limit is None else Rate.parse(self.rate_limit),
        )
        return None if limit == Limit() else limit


class Wishes(msgspec.Struct, frozen=True, kw_only=True):
    """What one task asks for; the function's own wishes are the default."""

    queue: str = "default"
    tags: tuple[str, ...] = ()
    requires: tuple[str, ...] = ()
    priority: int = 0
    tenant: str = "default"
    user_id: str | None = None
    delay: timedelta | None = None
    run_at: datetime | None = None
    expires: timedelta | None = None
    max_tries: int | None = None
    idempotency_key: str | None = None
    unique: Literal["while_kept", "while_pending"] | None = None
    conn: Any = None


class Function(Generic[P, T, R]):
    """A durable function. `app.dispatch(function, ...)` makes a task of it. Called inside another
    durable function it becomes a child task; anywhere else it runs here and now, as it stands."""

    def __init__(self, function: Callable[P, T], name: str, traits: Traits, wishes: Wishes) -> None:
        update_wrapper(self, function, updated=())  # its own attributes could hide ours
        self.function = function
        self.name, self.traits, self.wishes = name, traits, wishes
        self.signature = Signature(function)
        self.is_async = inspect.iscoroutinefunction(function)
        if isinstance(code := getattr(function, "__code__", None), CodeType):
            remember(code.co_filename)
        if traits.concurrency_key and not self.signature.has(traits.concurrency_key):
            raise InvalidInput(
                f"concurrency_key {traits.concurrency_key!r} is no argument of {self.signature}"
            )
        if traits.cron and (missing := self.signature.required):
            raise InvalidInput(
                f"with cron= a function is called without arguments; give {missing[0]!r} of "
                f"{self.signature} a default"
            )

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> T:
        attempt = running.get()
        if attempt is None or (flow := attempt.flow) is None:
            return self.function(*args, **kwargs)
        child: Any = flow.child(Call(self, args, kwargs))
        return child  # type: ignore[no-any-return]

    def __repr__(self) -> str:
        return f"<durable {self.name}{'@' + self.version if self.version else ''}>"

    @property
    def version(self) -> str:
        return self.traits.version

    def options(
        self,
        *,
        queue: str | None = None,
        tags: Iterable[str] | None = None,
        requires: Iterable[str] | None = None,
        priority: int | None = None,
        tenant: str | None = None,
        user_id: str | None = None,
        delay: Duration | None = None,
        run_at: datetime | None = None,
        expires: Duration | None = None,
        max_tries: int | None = None,
        idempotency_key: str | None = None,
        unique: Literal["while_kept", "while_pending"] | None = None,
        conn: Any = None,
    ) -> "Function[P, T, R]":
        """The same function with other wishes for the tasks that are made of it."""
        given = _given(
            queue=None if queue is None else check_name("queue", queue),
            tags=None if tags is None else check_labels("tag", tags),
            requires=None if requires is None else check_labels("requirement", requires),
            priority=None if priority is None else check_priority(priority),
            tenant=None if tenant is None else check_name("tenant", tenant),
            user_id=None if user_id is None else check_user_id(user_id),
            delay=None if delay is None else duration("delay", delay),
            run_at=None if run_at is None else check_instant("run_at", run_at),
            expires=None if expires is None else duration("expires", expires),
            max_tries=None if max_tries is None else check_tries(max_tries),
            idempotency_key=None
            if idempotency_key is None
            else check_key("idempotency key", idempotency_key),
            unique=unique,
            conn=conn,
        )
        wishes = msgspec.structs.replace(self.wishes, **given)
        return Function(self.function, self.name, self.traits, wishes)

    def call(self, *args: P.args, **kwargs: P.kwargs) -> "Call[R]":
        """A call to be dispatched, alone or with others: `app.dispatch_many([f.call(1), ...])`."""
        return Call(self, args, kwargs)

    def map(
        self, items: Iterable[Any], *, at_most: int | None = None, return_exceptions: bool = False
    ) -> Soon[list[R]]:
        """In a durable function: a child task for each item, and all their results in order. At
        most so many at once; the first failure cancels the others, unless exceptions are wanted
        as results."""
        calls = [Call(self, (item,), {}) for item in items]
        return _flow("map").join(calls, at_most=at_most, return_exceptions=return_exceptions)

    def starmap(
        self,
        items: Iterable[Iterable[Any]],
        *,
        at_most: int | None = None,
        return_exceptions: bool = False,
    ) -> Soon[list[R]]:
        """`map` for functions of several arguments."""
        calls = [Call(self, _arguments(item), {}) for item in items]
        return _flow("starmap").join(calls, at_most=at_most, return_exceptions=return_exceptions)

    def draft(
        self, args: tuple[Any, ...], kwargs: Mapping[str, Any], parent: Claimed | None = None
    ) -> Draft:
        """The task that this call makes. Arguments are checked here, in the caller. A child belongs
        to whom its parent belongs, unless it is said."""
        wishes, traits = self.wishes, self.traits
        tenant, user_id = wishes.tenant, wishes.user_id
        if parent is not None:
            if wishes.conn is not None:
                raise InvalidInput(
                    "conn= is for app.dispatch: a child that is awaited begins with its parent's "
                    "journal, and cannot wait for your commit; dispatch it, or leave out conn="
                )
            tenant = parent.lane.tenant if tenant == "default" else tenant
            user_id = parent.user_id if user_id is None else user_id
        payload = self.signature.pack(args, kwargs)
        check_expires(wishes.expires, wishes.delay)
        key = wishes.idempotency_key or self._own_key(payload, args, kwargs)
        if wishes.unique is not None and key is None:
            name = getattr(self.function, "__name__", self.name)
            raise InvalidInput(
                f"unique={wishes.unique!r} needs a key to go by; write "
                f'{name}.options(idempotency_key="order-7", unique={wishes.unique!r})'
            )
        return Draft(
            id=new_id(),
            type=self.name,
            payload=payload,
            queue=wishes.queue,
            version=traits.version,
            tags=wishes.tags,
            requires=wishes.requires,
            tenant=tenant,
            user_id=user_id,
            parent=None if parent is None else parent.lease.task,
            priority=wishes.priority,
            delay=wishes.delay,
            run_at=wishes.run_at,
            expires=wishes.expires,
            max_tries=wishes.max_tries,
            retry=traits.retry_policy,
            key=key,
            work=self._own_work(),
            unique=wishes.unique or "while_kept",
            fresh=None if wishes.idempotency_key or traits.runs_once else traits.cached,
            concurrency_key=self._concurrency_key(args, kwargs),
        )

    def tick(self, at: datetime, now: datetime) -> Draft:
        """The task for one time of its cron: there is one, whoever plans it."""
        key = f"cron:{self.name}:{at:%Y-%m-%dT%H:%M:%SZ}"
        draft = self.options(run_at=at, idempotency_key=key).draft((), {})
        if draft.expires is None or at <= now:
            return draft
        return msgspec.structs.replace(draft, expires=draft.expires + (at - now))

    def _own_key(
        self, payload: bytes, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> str | None:
        if self.traits.idempotency_key_func:
            return check_key("idempotency key", self.traits.idempotency_key_func(*args, **kwargs))
        if self.traits.idempotent:
            digest = sha256(self.name.encode() + b"\0" + payload).hexdigest()
            return f"{self.name[:150]}:{digest}"
        if self.traits.cached is not None:
            said = f"{self.name}\0{self.version}\0".encode() + payload
            return f"cached:{self.name[:150]}:{sha256(said).hexdigest()}"
        return None

    def _own_work(self) -> bytes | None:
        """Whoever makes keys of some arguments says that the others do not matter, also where a key
        is given: it may be the same."""
        return fingerprint(self.name, b"") if self.traits.idempotency_key_func else None

    def _concurrency_key(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> str | None:
        name = self.traits.concurrency_key
        if name is None:
            return None
        value = self.signature.value_of(name, args, kwargs)
        return value if isinstance(value, str) else encode(value).decode()


class Call(Generic[R]):
    """One call of a durable function that was not made yet."""

    __slots__ = ("args", "function", "kwargs")

    def __init__(
        self, function: Function[..., Any, R], args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> None:
        self.function, self.args, self.kwargs = function, args, kwargs

    def draft(self, parent: Claimed | None = None) -> Draft:
        return self.function.draft(self.args, self.kwargs, parent)

    def __await__(self) -> Generator[Any, Any, R]:
        """In a durable function: a child task, and its result."""
        return _flow("a call that is awaited").child(self).__await__()


def _flow(what: str) -> Asking:
    attempt = running.get()
    if attempt is None or (flow := attempt.flow) is None:
        raise HoldfastError(
            f"{what} works inside a durable function; elsewhere use app.dispatch or dispatch_many"
        )
    return flow


def _arguments(item: Iterable[Any]) -> tuple[Any, ...]:
    try:
        return tuple(item)
    except TypeError:
        raise InvalidInput(
            "starmap takes the arguments of each call as a tuple, as starmap([(1, 2), (3, 4)]); "
            f"got {type(item).__name__}; for one argument each there is map"
        ) from None


def _given(**values: Any) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}
