"""The examples of docs/howto/durable-functions.md, run as they stand."""

import asyncio
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast import Holdfast, RetryPolicy, TaskFailed, current
from holdfast.testing import AppUnderTest

PAGE = (Path(__file__).parents[2] / "docs/howto/durable-functions.md").read_text()
EXAMPLES = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
did: list[str] = []


def reserve(order: int) -> str:
    did.append(f"reserve {order}")
    return f"seat {order}"


def release(seat: str) -> None:
    did.append(f"release {seat}")


def mail(to: str) -> str:
    did.append(f"mail {to}")
    return f"mailed {to}"


def gift(user: str) -> None:
    did.append(f"gift {user}")


async def get_rate(currency: str) -> float:
    return 1.5


class Declined(Exception):
    pass


async def decline(trip: str) -> None:
    raise Declined(trip)


OURS = (reserve, release, mail, gift, get_rate, decline)


def load(examples: list[str]) -> dict[str, Any]:
    """All of it as one module."""
    names: dict[str, Any] = {
        **{function.__name__: function for function in OURS},
        "__name__": "durable_functions_page", "Holdfast": Holdfast, "TaskFailed": TaskFailed,
        "RetryPolicy": RetryPolicy, "asyncio": asyncio, "current": current,
    }  # fmt: skip
    for example in examples:
        exec(compile(example, "durable-functions.md", "exec"), names)
    return names


@pytest.fixture
def shop() -> dict[str, Any]:
    did.clear()
    return load(EXAMPLES)


@pytest.fixture
def app() -> Iterator[AppUnderTest]:
    app = AppUnderTest()
    yield app
    app.check_crashes()
    app.end()


RESULTS: dict[str, tuple[list[Any], Any]] = {
    "checkout": ([7], "mailed receipt 7"),
    "charge": ([7], "receipt 7"),
    "convert": ([2.0], 3.0),
    "purchase": ([7], "receipt 7"),
    "exchange_rate": (["EUR"], 1.5),
    "fan_out": ([[1, 2]], ["receipt 1", "receipt 2", "receipt 100", "3.0",
                           "receipt 101", "receipt 102", "receipt 103"]),
    "remind": ([], "no answer in two days"),
    "slow_answer": ([], "at last"),
    "publish": (["News"], "News: nobody approved"),
    "ticket": ([], re.compile(r"[0-9a-f-]{36}, 0\.\d{3}|1\.000, of \d{4}-\d\d-\d\d")),
    "count_down": ([3], "lift-off"),
    "nightly": ([7], "receipt 7, filed"),
    "file_away": (["receipt 7"], "receipt 7, filed"),
    "book": (["Rome"], re.compile(r"Rome is off: [\w.]+\.Declined$")),
    "three_rates": ([], [1.5, 1.5, 1.5]),
    "welcome": (["Ada"], "mailed survey for Ada"),
    "greet": (["Ada"], "welcome, Ada"),
}  # fmt: skip


def test_every_function_of_the_page_is_run():
    defined = re.findall(r"^(?:async )?def (\w+)", "\n".join(EXAMPLES), re.MULTILINE)
    assert defined == list(RESULTS)


@pytest.mark.parametrize("name", RESULTS)
async def test_the_functions_of_the_page_do_what_it_says(name: str, shop, app: AppUnderTest):
    args, result = RESULTS[name]
    task = await app.dispatch(shop[name], *args)
    await app.run_for("8d")
    found = await task.result(timeout=30)
    if isinstance(result, re.Pattern):
        assert result.match(found), found
    else:
        assert found == result


async def test_what_is_done_is_not_done_again(shop, app: AppUnderTest):
    app.crash_at(shop["checkout"], after="reserve")
    task = await app.dispatch(shop["checkout"], 7)
    await app.run_for("1h")
    app.assert_enqueued(shop["charge"], count=0)
    assert await task.result(timeout=30) == "mailed receipt 7"
    assert did == ["reserve 7", "mail receipt 7"]


async def test_what_failed_side_by_side_runs_again_and_the_rest_does_not(shop, app: AppUnderTest):
    async def flaky(name: str) -> float:
        did.append(name)
        if name != "CHF" and did.count(name) == 1:
            raise ConnectionError(name)
        return 2.0

    shop["get_rate"] = flaky
    task = await app.dispatch(shop["three_rates"])
    await app.run_for("1h")
    assert await task.result(timeout=30) == [2.0, 2.0, 2.0]
    assert sorted(did) == ["CHF", "EUR", "EUR", "USD", "USD"]


async def test_a_person_approves(shop, app: AppUnderTest):
    task = await app.dispatch(shop["publish"], "News")
    await app.send_signal(task, "approved", "Ada")
    await app.drain()
    assert await task.result(timeout=30) == "News: approved by Ada"


async def test_a_failed_payment_frees_the_seat(shop, app: AppUnderTest):
    await app.dispatch(shop["book"], "Rome")
    await app.drain()
    assert did == ["reserve 7", "release seat 7"]


def edited(page: list[str], old: str, new: str) -> list[str]:
    changed = [example.replace(old, new) for example in page]
    assert changed != page
    return changed


GIFT = '    if Holdfast.patched("gifts"):\n        await Holdfast.step("gift", gift, user)\n'


async def test_a_run_that_disagrees_with_the_code_is_parked_and_released(app: AppUnderTest):
    did.clear()
    before = edited(EXAMPLES, GIFT, "")
    task = await app.dispatch(load(before)["welcome"], "Ada")
    await app.drain()
    load(edited(before, '"mail", mail, user', '"letter", mail, user'))
    await app.advance("7d")
    await app.drain()
    state = await app.state_of(task)
    assert state.status == "waiting"
    shown = re.findall(r"```\n(parked:.*?)```", PAGE, re.DOTALL)
    assert [f"{state.reason}\n"] == shown
    load(before)
    assert await app.retry(task)
    await app.drain()
    assert await task.result(timeout=30) == "mailed survey for Ada"
    assert did == ["mail Ada", "mail survey for Ada"]


async def test_a_parked_run_can_be_cancelled(app: AppUnderTest):
    task = await app.dispatch(load(EXAMPLES)["welcome"], "Ada")
    await app.drain()
    load(edited(EXAMPLES, '"mail", mail, user', '"letter", mail, user'))
    await app.advance("7d")
    await app.drain()
    await app.cancel(task)
    await app.drain()
    assert (await app.state_of(task)).status == "cancelled"


async def test_runs_that_passed_a_patch_before_keep_the_old_way(app: AppUnderTest):
    did.clear()
    old = await app.dispatch(load(edited(EXAMPLES, GIFT, ""))["welcome"], "Ada")
    await app.drain()
    new = await app.dispatch(load(EXAMPLES)["welcome"], "Bob")
    await app.run_for("7d")
    assert await old.result(timeout=30) == "mailed survey for Ada"
    assert await new.result(timeout=30) == "mailed survey for Bob"
    assert "gift Bob" in did
    assert "gift Ada" not in did
