"""Requests of every kind, made by chance from the description itself: nothing fails inside, and
nothing is answered that the description does not name."""

import asyncio
import contextlib
import itertools
import threading
from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from holdfast import Holdfast
from holdfast.desk.caller import ROLES, Caller
from holdfast.http.serving import serve
from tests.http.conftest import SomeKeys

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
]
CALLERS = {
    "root": Caller(name="root"),
    "acme": Caller(name="acme", tenant="acme"),
    **{
        f"{role}-{tenant}": Caller(
            name=f"{role}-{tenant}", tenant=tenant, scopes=frozenset(ROLES[role])
        )
        for role in ("viewer", "operator", "worker")
        for tenant in (None, "other")
    },
}
IN_TURN = itertools.cycle(["root", "acme", "operator-None", "root", "worker-other", "root"])
# A stream never ends: it has tests of its own.
SCHEMA = schemathesis.openapi.from_dict(Holdfast("sqlite://:memory:").asgi().openapi()).exclude(
    operation_id="follow_events"
)


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The API in a thread of this process, with functions and keys of two tenants."""
    folder, ready = tmp_path_factory.mktemp("any"), threading.Event()
    found: list[Any] = []

    async def main() -> None:
        app = Holdfast(f"sqlite:///{folder}/any.db")

        @app.durable(name="pay")
        async def pay(order: int) -> int:
            return order

        def started(address: str) -> None:
            found.extend([address, asyncio.get_running_loop(), asyncio.current_task()])
            ready.set()

        await serve(app, port=0, ready=started, keys=[SomeKeys(**CALLERS)], rate=0)

    def run() -> None:
        with asyncio.Runner() as runner, contextlib.suppress(asyncio.CancelledError):
            runner.run(main())

    thread = threading.Thread(target=run)
    thread.start()
    assert ready.wait(60)
    yield found[0]
    found[1].call_soon_threadsafe(found[2].cancel)
    thread.join(60)


def without_waiting(case: Any) -> None:
    for part in (case.query, case.body):
        if isinstance(part, dict) and "wait" in part:
            part["wait"] = 0
    if case.headers:
        case.headers.pop("Prefer", None)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.timeout(600)
@SCHEMA.parametrize()
@settings(
    max_examples=8,
    deadline=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
)
def test_no_request_finds_a_fault(case: Any, base: str):
    without_waiting(case)
    key = {"Authorization": f"Bearer {next(IN_TURN)}"}
    case.call_and_validate(base_url=base, headers=key, checks=CHECKS)
