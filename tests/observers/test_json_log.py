"""JSON lines carry what a record was given as `extra`, and nothing that is a secret."""

import copy
import io
import json
import logging
import logging.handlers
import pickle
import queue
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pydantic
import pytest

from holdfast import install_structured_logging
from holdfast.context import Context, running
from holdfast.ids import new_grant, new_id
from holdfast.observers.log import JsonFormatter
from holdfast.tasks.lane import Lane
from holdfast.tasks.task import Claimed, Lease

SECRET = "hunter2hunter2"


@dataclass
class Login:
    user: str
    password: str


class Model(pydantic.BaseModel):
    user: str
    api_key: str


class Evil:
    def __str__(self) -> str:
        raise RuntimeError("no")

    __repr__ = __str__


@pytest.fixture
def lines() -> Iterator[tuple[logging.Logger, Any]]:
    before = logging.getLogRecordFactory()
    logger, out = logging.Logger("tests.json"), io.StringIO()
    logger.addHandler(logging.StreamHandler(out))
    install_structured_logging(logger, as_json=True, redact=["card"])
    yield logger, lambda: json.loads(out.getvalue().splitlines()[-1], parse_constant=pytest.fail)
    logging.setLogRecordFactory(before)


@pytest.fixture
def in_a_task() -> Iterator[Context]:
    lease = Lease(new_id(), new_grant(), 1)
    claimed = Claimed(
        lease=lease, lane=Lane(queue="mail", type="t"), priority=0, tries=1, payload=b"null"
    )
    keeper: Any = None
    context = Context(claimed, keeper, secrets=lambda: frozenset({SECRET, "123456"}))
    token = running.set(context)
    yield context
    running.reset(token)


def test_what_comes_as_extra_is_told(lines):
    logger, told = lines
    at = datetime(2030, 1, 2, tzinfo=UTC)
    logger.info("sent", extra={"order": 7, "to": "ann", "parts": (1, {"at": at}), "none": None})
    line = told()
    assert line["message"] == "sent"
    assert (line["order"], line["to"], line["none"]) == (7, "ann", None)
    assert line["parts"] == [1, {"at": "2030-01-02T00:00:00Z"}]


def test_no_extra_takes_the_place_of_a_field_of_ours(lines):
    logger, told = lines
    names = ("time", "level", "logger", "exception")
    logger.info("sent", extra=dict.fromkeys(names, "mine"))
    line = told()
    assert (line["level"], line["logger"]) == ("INFO", "tests.json")
    assert line["time"].startswith("20")
    assert "exception" not in line
    assert [line[f"extra_{name}"] for name in names] == ["mine"] * 4
    record = logging.makeLogRecord({"msg": "x", "holdfast_task_id": "", "_private": 1})
    assert "holdfast_task_id" not in (line := json.loads(JsonFormatter().format(record)))
    assert "_private" not in line


def test_fields_of_secret_names_are_hidden_wherever_they_stand(lines):
    logger, told = lines
    logger.info(
        "in",
        extra={
            "password": "a", "Api-Key": "b", "card": "c",
            "deep": [{"token": "d", "card": 4}],
            "login": Login("ann", "e"), "model": Model(user="ann", api_key="f"),
        },
    )  # fmt: skip
    line = told()
    hidden = "[hidden]"
    assert [line[name] for name in ("password", "Api-Key", "card")] == [hidden] * 3
    assert line["deep"] == [{"token": hidden, "card": hidden}]
    assert line["login"] == {"user": "ann", "password": hidden}
    assert line["model"] == {"user": "ann", "api_key": hidden}


def test_secrets_of_the_task_are_hidden_in_every_value(lines, in_a_task):
    logger, told = lines
    error = ValueError(f"refused {SECRET}")
    extra = {
        "url": f"https://x/?t={SECRET}", "pin": 123456, "deep": [{SECRET: [SECRET]}],
        "error": error, f"name {SECRET}": 1, "plain": 12,
    }  # fmt: skip
    logger.info("in", extra=extra)
    line = told()
    assert SECRET not in json.dumps(line)
    assert "123456" not in json.dumps(line)
    assert (line["url"], line["plain"]) == ("https://x/?t=[hidden]", 12)
    assert line["error"] == "refused [hidden]"
    assert line["holdfast_task_id"] == str(in_a_task.task_id)


def test_they_are_hidden_where_another_thread_or_process_writes_the_record(lines, in_a_task):
    logger, _ = lines
    waiting: queue.SimpleQueue[logging.LogRecord] = queue.SimpleQueue()
    logger.addHandler(logging.handlers.QueueHandler(waiting))
    logger.info("in", extra={"url": f"https://x/?t={SECRET}", "order": 7})
    record = waiting.get()
    token = running.set(None)
    try:
        here = json.loads(JsonFormatter().format(copy.copy(record)))
        elsewhere = json.loads(JsonFormatter().format(pickle.loads(pickle.dumps(record))))
    finally:
        running.reset(token)
    assert (here["url"], here["order"]) == ("https://x/?t=[hidden]", 7)
    assert SECRET not in json.dumps(elsewhere)
    assert elsewhere["message"] == "in"


def test_what_cannot_be_told_does_not_raise(lines):
    logger, told = lines
    around: dict[str, Any] = {"token": SECRET}
    around["self"] = [around, around]
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    logger.info(
        "odd",
        extra={
            "evil": Evil(), "around": around, "deep": deep, "nan": float("nan"), "huge": 10**5000,
            "bytes": b"\xff", "half": "\ud800", "keys": {(1, 2): 3}, "set": {1}, "type": int,
        },
    )  # fmt: skip
    line = told()
    assert (line["evil"], line["huge"]) == ("<Evil>", "<int>")
    assert line["around"] == {"token": "[hidden]", "self": ["...", "..."]}
    assert (line["nan"], line["keys"], line["set"]) == ("nan", {"(1, 2)": 3}, [1])
    assert (line["half"], line["type"]) == ("\ud800", "<class 'int'>")
    odd: dict[Any, Any] = {"msg": "x", 7: "a name that is no text"}
    record = logging.makeLogRecord(odd)
    assert json.loads(JsonFormatter().format(record))["7"]
