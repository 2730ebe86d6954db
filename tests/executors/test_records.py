"""Log records of child processes are handled by their worker, with the task's fields."""

import json
import logging
from collections.abc import AsyncIterator, Iterator

import pytest
import pytest_asyncio

from holdfast import install_structured_logging
from holdfast.errors import ProcessDied
from holdfast.executors import records, wire
from holdfast.executors.process import ProcessExecutor
from holdfast.observers.log import JsonFormatter
from tests.executors import functions
from tests.executors.acts import attempt, within

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def executor() -> AsyncIterator[ProcessExecutor]:
    made = ProcessExecutor()
    yield made
    await made.close()


@pytest.fixture(autouse=True)
def own_records() -> Iterator[None]:
    before = logging.getLogRecordFactory()
    install_structured_logging()
    yield
    logging.setLogRecordFactory(before)


def told(caplog: pytest.LogCaptureFixture, name: str = "tests.child") -> list[logging.LogRecord]:
    return [record for record in caplog.records if record.name == name]


async def test_records_of_a_child_reach_the_workers_handlers_with_their_task(executor, caplog):
    caplog.set_level(logging.INFO)
    context = attempt(functions.log, "hello")
    await within(executor.run(functions.log, context))
    (record,) = told(caplog)
    assert (record.getMessage(), record.levelname, record.funcName) == ("hello", "INFO", "log")
    assert vars(record)["holdfast_task_id"] == str(context.task_id)
    (broke,) = told(caplog, "holdfast.task")
    assert broke.exc_text
    assert "ValueError: no" in broke.exc_text
    assert "ValueError: no" in JsonFormatter().format(broke)
    assert "ValueError: no" in logging.Formatter().format(broke)


async def test_what_a_child_gives_as_extra_is_kept_without_secrets(executor, caplog):
    caplog.set_level(logging.INFO)
    context = attempt(functions.log_extra, "hunter2hunter2")
    context.secrets = lambda: frozenset({"hunter2hunter2"})
    await within(executor.run(functions.log_extra, context))
    (record,) = told(caplog)
    line = json.loads(JsonFormatter().format(record))
    assert "hunter2" not in str(vars(record))
    assert (line["order"], line["url"]) == (7, "https://x/?key=[hidden]")
    assert (line["password"], line["pid"]) == ("[hidden]", [1, 2])
    caplog.clear()
    await within(executor.run(functions.log_extra, attempt(functions.log_extra, "k", 9000)))
    (record,) = told(caplog)
    assert vars(record)["extra"].startswith("left out: 1 of 5 fields; all have 9,")
    assert (vars(record)["order"], vars(record)["url"]) == (7, "https://x/?key=k")
    assert "much" not in vars(record)


async def test_a_call_of_a_child_whose_arguments_do_not_fit_shows_no_secret(caplog, capfd):
    executor = ProcessExecutor()
    context = attempt(functions.log_badly, "hunter2hunter2")
    context.secrets = lambda: frozenset({"hunter2hunter2"})
    await within(executor.run(functions.log_badly, context))
    await executor.close()
    (record,) = told(caplog)
    assert record.getMessage().startswith("login %d (its arguments do not fit: ")
    assert capfd.readouterr().err == ""


async def test_levels_are_those_of_the_worker_call_by_call(executor, caplog):
    caplog.set_level(logging.DEBUG, "tests.child")
    await within(executor.run(functions.log, attempt(functions.log, "hello")))
    assert [record.getMessage() for record in told(caplog)] == ["too much", "hello"]
    caplog.clear()
    caplog.set_level(logging.ERROR, "tests.child")
    await within(executor.run(functions.log, attempt(functions.log, "hello")))
    assert told(caplog) == []
    caplog.set_level(logging.INFO)
    caplog.set_level(logging.NOTSET, "tests.child")
    await within(executor.run(functions.log, attempt(functions.log, "hello")))
    assert [record.getMessage() for record in told(caplog)] == ["hello"]


async def test_what_a_child_logged_before_it_crashed_is_there(executor, caplog):
    with pytest.raises(ProcessDied):
        await within(executor.run(functions.log_and_crash, attempt(functions.log_and_crash)))
    assert [record.getMessage() for record in told(caplog)] == ["last words"]


async def test_a_forked_copy_does_not_write_into_the_line(executor, caplog):
    result = await within(executor.run(functions.log_in_a_fork, attempt(functions.log_in_a_fork)))
    assert result == b"0"
    assert told(caplog) == []


async def test_records_are_bounded_in_length_and_number(executor, caplog):
    caplog.set_level(logging.INFO)
    await within(executor.run(functions.log, attempt(functions.log, "x" * 100_000)))
    assert len(told(caplog)[0].getMessage()) == 8_000
    sent: list[wire.Logged] = []
    handler = records.LineHandler(
        sent.append, is_sending=lambda: False, number=lambda: 1, scrub=str
    )
    record = logging.LogRecord("n", logging.INFO, "p", 1, "m", (), None)
    for _ in range(1_500):
        handler.handle(record)
    assert len(sent) == 1_000
    record.created += 1.0
    handler.handle(record)
    assert "500 log records were left out" in sent[1_000].message
    assert len(sent) == 1_002
