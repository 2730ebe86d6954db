"""Secrets among the arguments reach no error, log or page, also where they are cut."""

import contextlib
import io
import logging
from collections.abc import Iterator

import pytest

from holdfast import RetryPolicy, install_structured_logging
from tests.work.bench import Bench
from tests.work.isolated import login

SECRET = "correct-horse-battery"
CARD = "4000-1234-5678-9010"
shop = logging.getLogger("shop")


async def test_an_error_and_a_log_line_show_no_secret(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    @bench.app.durable(retry_policy=RetryPolicy(max_attempts=1))
    async def login(user: str, password: str) -> None:
        shop.warning("%s logs in with %s", user, password)
        try:
            raise KeyError(password)
        except KeyError as error:
            error.add_note(f"it was {password}")
            raise RuntimeError("x" * 3990 + password) from error

    @bench.app.durable(retry_policy=RetryPolicy(max_attempts=1))
    def in_thread(headers: dict[str, str]) -> None:
        raise RuntimeError(f"sent {headers['Authorization']}")

    tasks = [
        await bench.app.dispatch(login, "ann", SECRET),
        await bench.app.dispatch(in_thread, {"Authorization": SECRET}),
    ]
    async with bench.worker():
        for task in tasks:
            await bench.app.wait_for(task, timeout=60)
    store, desk = await bench.store(), await bench.app.desk()
    for task in tasks:
        said = repr(await store.ending(task.id)) + repr(await store.attempts(task.id))
        said += repr(await store.logs(task.id)) + repr(await desk.arguments(task.id))
        assert "[hidden]" in said
        assert SECRET[:10] not in said
    ours = [r.getMessage() for r in caplog.records if r.name.startswith("holdfast")]
    assert SECRET[:10] not in "".join(ours)


@pytest.fixture
def stderr() -> Iterator[io.StringIO]:
    """What the handlers of `shop` write, and what they say of calls that cannot be written."""
    before, out = logging.getLogRecordFactory(), io.StringIO()
    handler = logging.StreamHandler(out)
    shop.addHandler(handler)
    shop.propagate = False
    install_structured_logging()
    with contextlib.redirect_stderr(out):
        yield out
    logging.setLogRecordFactory(before)
    shop.propagate = True
    shop.removeHandler(handler)


class Silent:
    def __str__(self) -> str:
        raise RuntimeError("no")


async def test_a_log_call_whose_arguments_do_not_fit_shows_no_secret(
    bench: Bench, stderr: io.StringIO
) -> None:
    @bench.app.durable
    async def login(user: str, password: str) -> None:
        shop.warning("login %d", password)
        shop.warning(Silent(), password)

    @bench.app.durable
    def in_thread(password: str) -> None:
        shop.warning("again %s %s", password)

    tasks = [
        await bench.app.dispatch(login, "ann", SECRET),
        await bench.app.dispatch(in_thread, SECRET),
    ]
    async with bench.worker():
        for task in tasks:
            await task.result(timeout=60)
    assert SECRET[:10] not in stderr.getvalue()
    said = "login %d (its arguments do not fit: %d format: a real number is required"
    assert said in stderr.getvalue()
    assert "again %s %s (its arguments do not fit: not enough arguments" in stderr.getvalue()
    assert "<Silent> (it cannot be told)" in stderr.getvalue()


async def test_a_process_of_its_own_shows_no_secret(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """By the names that this worker hides, and before anything is cut."""
    monkeypatch.setenv("HOLDFAST_REDACT", "card")
    async with Bench(sqlite_url) as bench:
        task = await bench.app.dispatch(login, "ann", SECRET, CARD)
        async with bench.worker():
            await bench.app.wait_for(task, timeout=60)
        store = await bench.store()
        kept = [repr(await store.ending(task.id)), repr(await store.attempts(task.id))]
        kept.append(repr(await store.logs(task.id)))
    assert "[hidden]" in kept[0]
    assert "logs in with" in kept[2]
    said = "".join(kept) + caplog.text
    assert SECRET[:10] not in said
    assert CARD[:10] not in said
