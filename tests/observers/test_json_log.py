"""JSON lines carry what a record was given as `extra`, and nothing that is a secret."""

import copy
import io
import json
import logging
import logging.handlers
import pickle
import queue
import subprocess
import sys
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import Enum
from types import SimpleNamespace
from typing import Any, NamedTuple

import msgspec
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


@dataclass
class Session:
    user: str
    jar: str = field(repr=False)


class State(str, Enum):  # noqa: UP042
    OPEN = "open"


class Size(Enum):
    BIG = 3


class Pair(NamedTuple):
    user: str
    password: str


class Account(msgspec.Struct):
    user: str
    api_key: str


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


def test_names_that_make_room_for_ours_take_nobody_elses_place(lines):
    logger, told = lines
    for extra in ({"level": 1, "extra_level": 2}, {"extra_level": 2, "level": 1}):
        logger.info("sent", extra=extra)
        line = told()
        assert (line["extra_level"], line["extra_extra_level"]) == (2, 1)
        assert line["level"] == "INFO"


def test_members_of_enumerations_are_told_by_their_value(lines):
    logger, told = lines
    extra = {"state": State.OPEN, "size": Size.BIG, "deep": [{State.OPEN: Size.BIG}]}
    logger.info("in", extra=extra)
    line = told()
    assert (line["state"], line["size"], line["deep"]) == ("open", 3, [{"open": 3}])


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


def test_what_has_fields_is_told_by_their_names(lines):
    logger, told = lines
    extra = {
        "pair": Pair("ann", "a"), "account": Account("ann", "b"),
        "space": SimpleNamespace(user="ann", card="c"),
        "both": deque([Pair("ann", "d"), Account("ann", "e")]),
        "deep": {"of": [SimpleNamespace(login=Login("ann", "f"))]},
        "session": Session("ann", "g"), "type": Session,
    }  # fmt: skip
    logger.info("in", extra=extra)
    line = told()
    hidden = "[hidden]"
    assert line["pair"] == {"user": "ann", "password": hidden}
    assert line["account"] == {"user": "ann", "api_key": hidden}
    assert line["space"] == {"user": "ann", "card": hidden}
    assert line["both"] == [line["pair"], line["account"]]
    assert line["deep"] == {"of": [{"login": line["pair"]}]}
    assert line["session"] == {"user": "ann"}, "what is kept out of its repr is not told"
    assert line["type"].endswith("Session'>")


def test_views_of_a_dict_are_told_as_what_they_show(lines):
    logger, told = lines
    given = {"user": "ann", "password": "x"}
    logger.info("in", extra={"k": given.keys(), "v": {"user": "ann"}.values(), "i": given.items()})
    line = told()
    assert (line["k"], line["v"]) == (["user", "password"], ["ann"])
    assert line["i"] == {"user": "ann", "password": "[hidden]"}


def test_what_lies_in_itself_ends(lines):
    logger, told = lines
    space, line = SimpleNamespace(user="ann"), deque[Any]([1])
    space.self = space
    line.append(line)
    logger.info("in", extra={"space": space, "line": line})
    assert told()["space"] == {"user": "ann", "self": "..."}
    assert told()["line"] == [1, "..."]


def test_no_record_tells_more_than_ten_thousand_values(lines):
    logger, told = lines
    many = list(range(6_000))
    logger.info("in", extra={"rows": [many, many], "after": 1})
    line = told()
    assert line["rows"][0] == many
    kept = line["rows"][1].index("...")
    assert line["rows"][1][:kept] == many[:kept]
    assert 3_000 < kept < 4_000
    assert line["after"] == "..."


def test_secrets_of_the_task_are_hidden_in_every_value(lines, in_a_task):
    logger, told = lines
    error = ValueError(f"refused {SECRET}")
    extra = {
        "url": f"https://x/?t={SECRET}", "pin": 123456, "deep": [{SECRET: [SECRET]}],
        "error": error, f"name {SECRET}": 1, "plain": 12, "bytes": b"t=" + SECRET.encode(),
        "buffers": [bytearray(SECRET.encode()), memoryview(SECRET.encode())],
    }  # fmt: skip
    logger.info("in", extra=extra)
    line = told()
    assert SECRET not in json.dumps(line)
    assert "123456" not in json.dumps(line)
    assert (line["url"], line["plain"]) == ("https://x/?t=[hidden]", 12)
    assert line["error"] == "refused [hidden]"
    assert (line["bytes"], line["buffers"]) == ("t=[hidden]", ["[hidden]"] * 2)
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


def test_a_process_that_does_not_have_holdfast_reads_a_record_of_a_task(lines, in_a_task):
    logger, _ = lines
    waiting: queue.SimpleQueue[logging.LogRecord] = queue.SimpleQueue()
    logger.addHandler(logging.handlers.QueueHandler(waiting))
    logger.info("in with %s", SECRET, extra={"order": 7})
    reader = (
        "import importlib.util, logging, pickle, sys\n"
        "assert importlib.util.find_spec('holdfast') is None\n"
        "record = pickle.load(sys.stdin.buffer)\n"
        "print(record.getMessage(), record.order, record.holdfast_task_id)"
    )
    read = subprocess.run(
        [sys.executable, "-I", "-S", "-c", reader],
        input=pickle.dumps(waiting.get()),
        capture_output=True,
        check=False,
        timeout=60,
    )
    assert read.returncode == 0, read.stderr.decode()
    assert read.stdout.decode().split() == ["in", "with", "[hidden]", "7", str(in_a_task.task_id)]


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
