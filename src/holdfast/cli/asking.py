"""Where a command asks, a store or an API, and how it answers: the same for all of them."""

import asyncio
import functools
import getpass
import os
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit
from uuid import UUID

import click

from holdfast import config
from holdfast.cli.exits import Exit, Stop
from holdfast.cli.options import store_option
from holdfast.cli.render import Printer, say
from holdfast.desk.desk import Desk

if TYPE_CHECKING:
    from holdfast.app import Holdfast

__all__ = ["TASK", "Asking", "asks", "file_of", "local_app", "look", "whoami"]

T = TypeVar("T")
F = Callable[..., Any]


class _TaskId(click.ParamType[UUID]):
    name = "task"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> UUID:
        try:
            return value if isinstance(value, UUID) else UUID(value)
        except ValueError:
            self.fail(f"{value!r:.80} is not the id of a task", param, ctx)


TASK = _TaskId()


class Asking:
    """The desk of one command, and the form of its answers."""

    def __init__(
        self,
        *,
        store: str | None,
        api: str | None,
        token_file: str | None,
        output: str,
        time: str | None,
    ) -> None:
        if store and api:
            raise Stop(Exit.USAGE, "give --store or --api, not both")
        self.store, self._api, self._token_file = store, api, token_file
        self.out = Printer(output, time)

    def ask(self, question: Callable[[Desk], Awaitable[T]], *, knowing: bool = False) -> T:
        """Open the desk, ask, close it. `knowing`: its functions help, where HOLDFAST_APP says
        where they are and they can be imported."""

        async def asked() -> T:
            async with self.desk(knowing=knowing) as desk:
                return await question(desk)

        return asyncio.run(asked())

    @property
    def api(self) -> str | None:
        """Where the API is, if that is where to ask. A store that is named goes before the
        environment's API."""
        return self._api or (None if self.store else config.read(os.environ).api)

    @asynccontextmanager
    async def desk(self, *, knowing: bool = False) -> AsyncIterator[Desk]:
        if url := self.api:
            from holdfast.desk.remote import RemoteDesk

            token = self._token()
            if token and is_in_the_clear(url):
                say("the key goes over the network in the clear: use https:// where you can")
            yield RemoteDesk(url, token=token)
            return
        from holdfast.desk.caller import Caller

        async with local_app(self.store) as app:
            place = app.config.app if knowing else None
            if place is not None:
                from holdfast.cli.loading import load_app

                with suppress(Stop):
                    app.functions = load_app(place).functions
            yield await app.desk(Caller(name=whoami()))

    def _token(self) -> str | None:
        if self._token_file is None:
            return config.read(os.environ).token
        try:
            return Path(self._token_file).read_text("utf-8").strip()
        except (OSError, ValueError) as error:
            why = error.strerror if isinstance(error, OSError) else "it is no text"
            raise Stop(Exit.USAGE, f"--token-file cannot be read: {why}") from None


def local_app(store: str | None) -> "Holdfast":
    """An app over a store that is there. Asking neither makes one nor moves its schema."""
    from holdfast.app import Holdfast
    from holdfast.cli.loading import apply

    apply(store=store, auto_migrate=0)
    app = Holdfast()
    look(app.home.url)
    return app


def look(url: str) -> None:
    """Reading must not make a store where there is none."""
    path = file_of(url)
    if path is not None and not path.exists():
        raise Stop(
            Exit.UNREACHABLE,
            f"there is no store at {path}; name one with --store or HOLDFAST_STORE, or ask an API "
            "with --api",
        )


def file_of(url: str) -> Path | None:
    """Where an SQLite store lies."""
    if not url.startswith("sqlite:///"):
        return None
    return Path(url.partition("?")[0].removeprefix("sqlite:///"))


def is_in_the_clear(url: str) -> bool:
    """Whether others on the way could read along."""
    parts = urlsplit(url)
    here = ("localhost", "127.0.0.1", "::1")
    return parts.scheme == "http" and parts.hostname not in here


def whoami() -> str:
    """For the audit: who called, where."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a container's number without a name
        user = str(os.getuid()) if hasattr(os, "getuid") else "somebody"
    return f"{user}@{socket.gethostname()}"


_OPTIONS = (
    store_option,
    click.option(
        "--api",
        metavar="URL",
        help="Ask an API in place of a store: http://host:8000.  [HOLDFAST_API]",
    ),
    click.option(
        "--token-file",
        metavar="PATH",
        help="Where the API's key is.  [HOLDFAST_TOKEN, HOLDFAST_TOKEN_FILE]",
    ),
    click.option(
        "-o",
        "--output",
        type=click.Choice(["table", "json", "jsonl", "csv"]),
        default="table",
        show_default=True,
        help="For people, or for programs.",
    ),
    click.option(
        "--time",
        type=click.Choice(["relative", "iso"]),
        help="How instants are written in tables.  [default: relative on a terminal]",
    ),
)


def asks(function: F) -> F:
    """A command that asks a desk: its options, and `at` to ask with."""

    @functools.wraps(function)
    def called(*args: Any, **given: Any) -> Any:
        names = ("store", "api", "token_file", "output", "time")
        own = {name: given.pop(name) for name in names}
        return function(*args, at=Asking(**own), **given)

    wrapped: F = called
    for option in reversed(_OPTIONS):
        wrapped = option(wrapped)
    return wrapped
