"""Settings: read once from the environment, checked whole, frozen. The only reader of it.

Each setting has one name of ours, `HOLDFAST_…`; names that others have used for it are accepted
after it. A secret may stand in a file: `HOLDFAST_STORE_FILE` names the file.
"""

from collections.abc import Callable, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar, overload

import msgspec

from holdfast.errors import InvalidInput
from holdfast.tasks.durations import duration, longer_than_nothing
from holdfast.tasks.names import check_labels, check_name, check_number

__all__ = ["Config", "first", "read"]

T = TypeVar("T")


@overload
def first(given: T | None, other: T, /) -> T: ...
@overload
def first(given: T | None, /, *others: T | None) -> T | None: ...
def first(*values: Any) -> Any:
    """The first that is given. Nothing at all (0) is given too."""
    return next((value for value in values if value is not None), None)


class Config(msgspec.Struct, frozen=True, kw_only=True):
    """What the environment says. None: it says nothing."""

    store: str | None = None
    app: str | None = None
    api: str | None = None
    token: str | None = None
    redis_url: str | None = None
    auto_migrate: bool = True
    worker_id: str | None = None
    worker_type: str | None = None
    group_id: str | None = None
    worker_priority: int = 0
    priority_grace: timedelta | None = None
    concurrency: int | None = None
    pool_size: int | None = None
    queues: tuple[str, ...] | None = None
    tags: tuple[str, ...] | None = None
    capabilities: tuple[str, ...] = ()
    tenants: tuple[str, ...] | None = None
    lease: timedelta | None = None
    heartbeat_interval: timedelta | None = None
    recovery_interval: timedelta | None = None
    poll_min: float | None = None
    poll_max: float | None = None
    poll_backoff_factor: float | None = None
    max_tries: int | None = None
    drain_timeout: timedelta | None = None
    cleanup_interval: timedelta | None = None
    retention: timedelta | None = None
    dead_letter_retention: timedelta | None = None
    stuck_after: timedelta | None = None
    on_stuck: str = "report"
    task_logs: bool = True
    encryption_keys: str | None = None
    redact: tuple[str, ...] = ()
    health_host: str | None = None
    health_port: int | None = None
    api_key: str | None = None
    signing_key: str | None = None
    origin: dict[str, str] = {}  # which variable each setting came from


def _span(name: str, text: str) -> timedelta:
    return duration(name, float(text) if _is_number(text) else text)


def _whole(name: str, text: str) -> int:
    digits = text.strip().removeprefix("-")
    if not digits.isdecimal() or len(digits) > 9:
        raise InvalidInput(f"{name} must be a whole number, got {text!r:.80}")
    return int(text)


def _count(name: str, text: str) -> int:
    """At least one: nothing at all would be no worker, or no try."""
    number = _whole(name, text)
    if number < 1:
        raise InvalidInput(f"{name} must be at least 1, got {number}; leave it out for the default")
    return number


def _connections(name: str, text: str) -> int:
    return check_number(name, _whole(name, text), 1, 1000)


def _port(name: str, text: str) -> int:
    number = _whole(name, text)
    if not 0 <= number <= 65_535:
        raise InvalidInput(f"{name} must be a port, from 1 to 65535, got {number}")
    return number


def _some_span(name: str, text: str) -> timedelta:
    return longer_than_nothing(name, _span(name, text))


def _some_seconds(name: str, text: str) -> float:
    return _some_span(name, text).total_seconds()


def _number(name: str, text: str) -> float:
    if not _is_number(text):
        raise InvalidInput(f"{name} must be a number, got {text!r:.80}")
    return float(text)


def _yes(name: str, text: str) -> bool:
    if text.lower() not in ("0", "1", "false", "true", "no", "yes"):
        raise InvalidInput(f"{name} must be 0 or 1, got {text!r:.80}")
    return text.lower() in ("1", "true", "yes")


def _ring(name: str, text: str) -> str:
    from holdfast.sealing import KeyRing  # which most never need

    KeyRing.parse(text)
    return text


def _labels(name: str, text: str) -> tuple[str, ...]:
    return check_labels(name, (part.strip() for part in text.split(",") if part.strip()))


def _label(name: str, text: str) -> str:
    return check_name(name, text.strip())


def _on_stuck(name: str, text: str) -> str:
    if text.strip() not in ("report", "recover"):
        raise InvalidInput(f"{name} must be report or recover, got {text!r:.80}")
    return text.strip()


def _key(name: str, text: str) -> str:
    """Nothing of it is repeated in what is said."""
    if not 16 <= len(text.strip()) <= 500 or not text.strip().isascii():
        raise InvalidInput(f"{name} must have 16 to 500 ASCII characters; make one by chance")
    return text.strip()


def _text(_: str, text: str) -> str:
    return text.strip()


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


_Reading = tuple[Callable[[str, str], Any], tuple[str, ...]]
_READINGS: dict[str, _Reading] = {
    "store": (_text, ("HOLDFAST_STORE", "DATABASE_URL")),
    "app": (_text, ("HOLDFAST_APP",)),
    "api": (_text, ("HOLDFAST_API",)),
    "token": (_text, ("HOLDFAST_TOKEN",)),
    "redis_url": (_text, ("HOLDFAST_REDIS_URL", "REDIS_URL")),
    "auto_migrate": (_yes, ("HOLDFAST_AUTO_MIGRATE",)),
    "worker_id": (_text, ("HOLDFAST_WORKER_ID", "WORKER_ID")),
    "worker_type": (_label, ("HOLDFAST_WORKER_TYPE", "WORKER_TYPE")),
    "group_id": (_text, ("HOLDFAST_GROUP_ID", "GROUP_ID")),
    "worker_priority": (_whole, ("HOLDFAST_WORKER_PRIORITY",)),
    "priority_grace": (_span, ("HOLDFAST_PRIORITY_GRACE",)),
    "concurrency": (
        _count,
        ("HOLDFAST_CONCURRENCY", "WORKER_MAX_JOBS", "MAX_CONCURRENT_JOBS", "CONCURRENCY"),
    ),
    "pool_size": (_connections, ("HOLDFAST_POOL_SIZE",)),
    "queues": (_labels, ("HOLDFAST_QUEUES",)),
    "tags": (_labels, ("HOLDFAST_TAGS",)),
    "capabilities": (_labels, ("HOLDFAST_CAPABILITIES",)),
    "tenants": (_labels, ("HOLDFAST_TENANTS",)),
    "lease": (_some_span, ("HOLDFAST_LEASE", "WORKER_LEASE_DURATION_SECONDS")),
    "heartbeat_interval": (_some_span, ("HOLDFAST_HEARTBEAT_INTERVAL",)),
    "recovery_interval": (
        _some_span,
        ("HOLDFAST_RECOVERY_INTERVAL", "WORKER_RECOVERY_INTERVAL_SECONDS"),
    ),
    "poll_min": (_some_seconds, ("HOLDFAST_POLL_MIN", "WORKER_POLL_MIN_INTERVAL_SECONDS")),
    "poll_max": (_some_seconds, ("HOLDFAST_POLL_MAX", "WORKER_POLL_MAX_INTERVAL_SECONDS")),
    "poll_backoff_factor": (_number, ("HOLDFAST_POLL_BACKOFF_FACTOR",)),
    "max_tries": (_count, ("HOLDFAST_MAX_TRIES", "WORKER_MAX_RETRIES")),
    "drain_timeout": (_span, ("HOLDFAST_DRAIN_TIMEOUT",)),
    "cleanup_interval": (_some_span, ("HOLDFAST_CLEANUP_INTERVAL",)),
    "retention": (_span, ("HOLDFAST_RETENTION",)),
    "dead_letter_retention": (_span, ("HOLDFAST_DEAD_LETTER_RETENTION",)),
    "stuck_after": (_some_span, ("HOLDFAST_STUCK_AFTER",)),
    "on_stuck": (_on_stuck, ("HOLDFAST_ON_STUCK",)),
    "task_logs": (_yes, ("HOLDFAST_TASK_LOGS",)),
    "redact": (_labels, ("HOLDFAST_REDACT",)),
    "encryption_keys": (_ring, ("HOLDFAST_ENCRYPTION_KEYS",)),
    "health_host": (_text, ("HOLDFAST_HEALTH_HOST",)),
    "health_port": (_port, ("HOLDFAST_HEALTH_PORT",)),
    "api_key": (_key, ("HOLDFAST_API_KEY",)),
    "signing_key": (_key, ("HOLDFAST_SIGNING_KEY",)),
}
_SECRETS = {"encryption_keys", "store", "redis_url", "api_key", "signing_key", "token"}


def read(environ: Mapping[str, str]) -> Config:
    """All settings at once; all faults at once."""
    values: dict[str, Any] = {}
    origin: dict[str, str] = {}
    faults: list[str] = []
    for field, (parse, names) in _READINGS.items():
        for name in names:
            try:
                text = _look(environ, name, secret=field in _SECRETS)
                if text is None:
                    continue
                values[field] = parse(name, text)
            except InvalidInput as error:
                faults.append(str(error))
            origin[field] = name
            break
    if faults:
        raise InvalidInput("the environment cannot be used: " + "; ".join(faults))
    return Config(**values, origin=origin)


def _look(environ: Mapping[str, str], name: str, *, secret: bool) -> str | None:
    text = environ.get(name)
    if text is not None and text.strip():
        return text
    file = environ.get(f"{name}_FILE") if secret else None
    if not file:
        return None
    try:
        return Path(file).read_text("utf-8").strip()
    except OSError as error:
        raise InvalidInput(f"{name}_FILE cannot be read: {error.strerror}") from None
