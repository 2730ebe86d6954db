"""`holdfast worker`: one worker in this process, or several in processes of their own."""

import logging
import sys
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import click
from click.core import ParameterSource

from holdfast.cli.exits import Exit, Stop
from holdfast.cli.options import LABELS, SPAN, app_option, store_option

__all__ = ["worker"]

_NOT_FOR_CHILDREN = {"processes", "worker_id", "health_port"}


@click.command()
@app_option
@store_option
@click.option("--queues", type=LABELS, help="Take only these queues.  [HOLDFAST_QUEUES]")
@click.option("--tags", type=LABELS, help="Take what has one of these tags, or none.")
@click.option("--capabilities", type=LABELS, help="What this worker offers, such as gpu.")
@click.option("--tenants", type=LABELS, help="Take only tasks of these tenants.")
@click.option("--concurrency", type=click.IntRange(1, 100_000), help="Slots.  [default: 10]")
@click.option(
    "--pool-size",
    type=click.IntRange(1, 1000),
    help="Connections to PostgreSQL for functions' own transactions.  [default: 32]",
)
@click.option("--processes", type=click.IntRange(1, 1000), default=1, help="Worker processes.")
@click.option("--lease", type=SPAN, help="How long a lease lasts unrenewed.  [default: 5m]")
@click.option("--heartbeat", type=SPAN, help="Renew leases so often.  [default: a third of one]")
@click.option("--poll-min", type=SPAN, help="Shortest rest between two looks.  [default: 0.2s]")
@click.option("--poll-max", type=SPAN, help="Longest rest between two looks.  [default: 10s]")
@click.option("--drain-timeout", type=SPAN, help="Time to finish when draining.  [default: 30s]")
@click.option("--recovery-interval", type=SPAN, help="Look for dead workers' tasks so often.")
@click.option("--worker-id", help="Its name.  [default: host:pid]")
@click.option(
    "--worker-type",
    help="Its type: it serves the queue of that name, with 1 slot, unless told otherwise.",
)
@click.option("--worker-priority", type=int, help="Those with a higher one claim first.")
@click.option("--health-host", help="Where probes listen.  [default: 127.0.0.1]")
@click.option(
    "--health-port",
    type=click.IntRange(0, 65535),
    help="Serve /health, /livez, /readyz, /metrics there; with --processes, on the next ones too.",
)
@click.option("--max-tries", type=click.IntRange(1, 32_000), help="For tasks that say nothing.")
@click.option(
    "--log-level",
    type=click.Choice(["debug", "info", "warning", "error"]),
    default="info",
    show_default=True,
)
@click.option("--log-json", is_flag=True, help="Write the log as JSON, one object a line.")
@click.option("--redis-url", metavar="URL", help="Wake-ups through Redis.  [HOLDFAST_REDIS_URL]")
@click.option("--with-parent", is_flag=True, hidden=True)
@click.pass_context
def worker(ctx: click.Context, /, **given: Any) -> None:
    """Run a worker until it is told to drain.

    SIGTERM or Ctrl-C drains it: it claims nothing more, finishes what runs, and hands back the
    rest. A second Ctrl-C leaves at once; what it held is recovered when its leases have lapsed.

    A flag goes before the environment, the environment before the default.
    """
    from holdfast.cli.loading import apply

    settings = apply(
        store=given["store"],
        redis_url=given["redis_url"],
        worker_type=given["worker_type"],
        max_tries=given["max_tries"],
    )
    if not (given["app_name"] or settings.app):
        raise Stop(
            Exit.USAGE,
            "which functions? Give --app pkg.module:app, or set HOLDFAST_APP",
        )
    log_to_stderr(given["log_level"], as_json=given["log_json"], redact=settings.redact)
    if given["processes"] > 1:
        name, port = given["worker_id"] or settings.worker_id, given["health_port"]
        port = settings.health_port if port is None else port
        sys.exit(_many(ctx, given["processes"], name, port))
    sys.exit(_one(given))


def _one(given: dict[str, Any]) -> int:
    from holdfast.cli.loading import app_at
    from holdfast.cli.serving import serve_here

    app = app_at(given["store"], given["app_name"], given["redis_url"], given["pool_size"])
    return serve_here(
        app,
        with_parent=given["with_parent"],
        log_json=given["log_json"],
        worker_id=given["worker_id"],
        queues=given["queues"],
        tags=given["tags"],
        capabilities=given["capabilities"],
        tenants=given["tenants"],
        max_concurrency=given["concurrency"],
        lease_duration=given["lease"],
        heartbeat_interval=given["heartbeat"],
        poll_interval=_seconds(given["poll_min"]),
        poll_interval_max=_seconds(given["poll_max"]),
        drain_timeout=given["drain_timeout"],
        recovery_interval=given["recovery_interval"],
        worker_priority=given["worker_priority"],
        health_host=given["health_host"],
        health_port=given["health_port"],
    )


def _seconds(span: timedelta | None) -> float | None:
    return None if span is None else span.total_seconds()


def _many(ctx: click.Context, count: int, name: str | None, port: int | None) -> int:
    import asyncio

    from holdfast.cli.fleet import Fleet

    same = [sys.executable, "-m", "holdfast.worker", "--with-parent", *_flags_again(ctx)]

    def command(number: int) -> list[str]:
        own = ["--worker-id", f"{name}-{number}"] if name else []
        if port is not None:
            own += ["--health-port", str(port + number - 1 if port else 0)]
        return [*same, *own]

    return asyncio.run(Fleet(count, command).run())


def _flags_again(ctx: click.Context) -> list[str]:
    """The flags of this call, for the children; what the environment says they read themselves."""
    flags: list[str] = []
    for param in ctx.command.params:
        name, value = param.name, ctx.params.get(param.name or "")
        if not name or name in _NOT_FOR_CHILDREN:
            continue
        if ctx.get_parameter_source(name) is not ParameterSource.COMMANDLINE:
            continue
        match value:
            case True:
                flags.append(param.opts[0])
            case tuple():
                flags += [param.opts[0], ",".join(value)]
            case timedelta():
                flags += [param.opts[0], f"{value.total_seconds()!r}"]
            case _:
                flags += [param.opts[0], str(value)]
    return flags


def log_to_stderr(level: str, *, as_json: bool = False, redact: Sequence[str] = ()) -> None:
    """What happens, for people or for programs that read JSON."""
    from holdfast.observers.log import TextFormatter, install_structured_logging

    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(TextFormatter())
    logging.basicConfig(level=level.upper(), handlers=[handler])
    install_structured_logging(as_json=as_json, redact=redact)
