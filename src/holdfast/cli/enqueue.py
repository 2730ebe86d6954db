"""`holdfast enqueue`: a task from the shell."""

import asyncio
import json
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import click

from holdfast.cli.asking import Asking, asks
from holdfast.cli.exits import Exit, Stop
from holdfast.cli.options import INSTANT, LABELS, SPAN, app_option
from holdfast.cli.render import Printer, as_json, say
from holdfast.desk.desk import Desk
from holdfast.desk.shapes import NewTask

__all__ = ["enqueue"]


@click.command(context_settings={"ignore_unknown_options": False})
@click.argument("type", metavar="TYPE")
@click.argument("args", nargs=-1, metavar="[JSON]...")
@click.option("--kwargs", metavar="JSON", help="Arguments by name: '{\"a\": 1}'.")
@click.option("--version", help="Of the function, where it has several.")
@click.option("--queue", help="[default: the function's own]")
@click.option("--priority", type=int, help="Higher goes first.")
@click.option("--delay", type=SPAN, help="Not before so long from now.")
@click.option("--run-at", type=INSTANT, help="Not before then; local time unless it has a zone.")
@click.option("--tags", type=LABELS)
@click.option("--requires", type=LABELS, help="What a worker must offer.")
@click.option("--tenant")
@click.option("--user-id", help="For whom it runs, in the words of your application.")
@click.option("--max-tries", type=click.IntRange(1, 32_000))
@click.option("--expires", type=SPAN, help="Fails unless it is done by then.")
@click.option("--key", help="Idempotency key: the same key and payload make one task.")
@click.option("--wait", is_flag=True, help="Wait for its end and print its result.")
@click.option("--timeout", type=SPAN, default="30s", show_default=True, help="How long to wait.")
@app_option
@asks
def enqueue(
    at: Asking,
    type: str,
    args: tuple[str, ...],
    kwargs: str | None,
    wait: bool,
    timeout: timedelta,
    app_name: str | None,
    **wishes: Any,
) -> None:
    """Put a task of TYPE into its queue and print its id.

    Each argument is JSON: 7, '"text"', '{"a": 1}'. With an app (--app or HOLDFAST_APP) the
    arguments are checked against the function's signature, and a short name such as `charge` is
    enough; without one any type is accepted. An API knows its functions itself. With --wait the
    result is printed instead, as JSON; exit code 8: it failed; 7: it has not ended in time.
    """
    given = _arguments(args, kwargs)
    waiting = timeout if wait else None
    if at.api:
        at.ask(lambda desk: _submit(desk, at.out, _wish(type, *given, wishes), waiting))
        return
    from holdfast.cli.loading import app_at, apply

    has_app = bool(app_name or apply().app)
    app = app_at(at.store, app_name)
    call = _Call(type, *given, wishes, known=has_app)
    asyncio.run(_enqueue(app, call, waiting, at.out.form))


def _wish(type: str, args: list[Any], kwargs: dict[str, Any], wishes: dict[str, Any]) -> NewTask:
    given = {name: value for name, value in wishes.items() if value is not None}
    for old, new in (("key", "idempotency_key"), ("tenant", "tenant_id")):
        if old in given:
            given[new] = given.pop(old)
    for name in ("tags", "requires"):
        if name in given:
            given[name] = list(given[name])
    for name in ("delay", "expires"):
        if name in given:
            given[name] = given[name].total_seconds()
    return NewTask(type=type, args=args, kwargs=kwargs, **given)


async def _submit(desk: Desk, out: Printer, wish: NewTask, waiting: timedelta | None) -> None:
    from holdfast.cli.tasks import awaited, outcome

    (accepted,) = await desk.submit([wish])
    task = accepted.task.id
    if waiting is None:
        as_json({"id": str(task)}) if out.form != "table" else out.line(str(task))
        return
    if out.for_people:
        say(f"task {task}")
    outcome(out, await awaited(desk, task, waiting), waiting)


class _Call:
    """What was asked for, with an app that knows the function or without one."""

    def __init__(
        self,
        type: str,
        args: Sequence[Any],
        kwargs: dict[str, Any],
        wishes: dict[str, Any],
        *,
        known: bool,
    ) -> None:
        self._type, self._args, self._kwargs = type, args, kwargs
        self._wishes = {name: value for name, value in wishes.items() if value is not None}
        self.known = known

    def draft(self, app: Any) -> Any:
        key = self._wishes.pop("key", None)
        if self.known:
            function = app.functions.find(self._type, self._wishes.pop("version", None))
            own = function.options(idempotency_key=key, **self._wishes)
            return own.draft(tuple(self._args), self._kwargs)
        from holdfast.ids import new_id
        from holdfast.tasks.names import check_expires
        from holdfast.tasks.payload import encode
        from holdfast.tasks.task import Draft

        check_expires(self._wishes.get("expires"), self._wishes.get("delay"))
        payload = encode({"args": self._args, "kwargs": self._kwargs})
        return Draft(id=new_id(), type=self._type, payload=payload, key=key, **self._wishes)


def _arguments(args: Sequence[str], kwargs: str | None) -> tuple[list[Any], dict[str, Any]]:
    named = {} if kwargs is None else _json("--kwargs", kwargs)
    if not isinstance(named, dict):
        raise Stop(Exit.USAGE, "--kwargs takes a JSON object, such as '{\"name\": 1}'")
    return [_json("argument", text) for text in args], named


def _json(what: str, text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        hint = f"'\"{text}\"'" if text.isalnum() else "7, '\"text\"' or '{\"a\": 1}'"
        raise Stop(Exit.USAGE, f"{what} {text!r:.80} is not JSON; write {hint}") from None


async def _enqueue(app: Any, call: _Call, waiting: timedelta | None, output: str) -> None:
    draft = call.draft(app)
    async with app:
        client = await app.home.client()
        if not (call.known or draft.version):
            _check_version(draft.type, await client.store.workers())
        (task,) = await client.enqueue([draft])
        if waiting is None:
            as_json({"id": str(task)}) if output != "table" else click.echo(str(task))
            return
        if output == "table":
            click.echo(f"task {task}", err=True)
        ending = await _ending(app, task, waiting)
    _show(task, ending, output)


def _check_version(type: str, workers: Sequence[Any]) -> None:
    """Where nobody here knows the function, those who would run it do."""
    names = {name for worker in workers if worker.status != "stopped" for name in worker.types}
    function, at, version = type.rpartition("@")
    if at and type in names:
        raise Stop(
            Exit.USAGE,
            f"the workers know {type} as version {version} of {function}; write {function} "
            f"--version {version} (or name the app with --app, where its name has an @ in it)",
        )
    if at:
        say(f"{type} is taken as a whole name; a version is said apart: --version {version}")
    versions = sorted(name for name in names if name.startswith(f"{type}@"))
    if versions and type not in names:
        raise Stop(
            Exit.USAGE,
            f"the workers know {', '.join(versions)}, and none without a version; say which with "
            "--version",
        )


async def _ending(app: Any, task: Any, waiting: timedelta) -> Any:
    try:
        return await app.wait_for(task, timeout=waiting)
    except TimeoutError:
        state = await app.state_of(task)
        if state.status in ("done", "failed", "cancelled"):  # just now
            return await app.wait_for(task)
        raise Stop(
            Exit.TIMED_OUT,
            f"task {task} has not ended within {waiting.total_seconds():g} s, it is "
            f"{state.status}; it goes on without us. Wait longer with --timeout, or check that a "
            f"worker serves the queue {state.queue!r}",
        ) from None


def _show(task: Any, ending: Any, output: str) -> None:
    from holdfast.tasks.payload import decode

    failure = ending.failure
    result = None if ending.result is None else decode(ending.result)
    error = failure and {"type": failure.type, "message": failure.message}
    if output != "table":
        as_json({"id": str(task), "status": ending.status, "result": result, "error": error})
    elif ending.status == "done":
        as_json(result)
    if ending.status == "done":
        return
    said = f"{failure.type}: {failure.message}" if failure else "somebody asked for it"
    raise Stop(
        Exit.TASK_FAILED,
        f"task {task} ended as {ending.status}, {said}\nOnce the cause is mended, "
        f"`holdfast tasks retry {task}` gives it a new life.",
    )
