"""Time and chance are read in their rooms only; elsewhere they are handed in."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import holdfast

HOUSE = Path(holdfast.__file__).parent

BANNED = {
    "datetime": {"now", "utcnow", "today", "fromtimestamp"},
    "date": {"today", "fromtimestamp"},
    "time": {
        "time", "time_ns", "monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns",
        "clock_gettime", "clock_gettime_ns", "process_time", "localtime", "gmtime",
    },
    "os": {"urandom", "getrandom"},
    "uuid": {"uuid1", "uuid4", "uuid6", "uuid7"},
    "random": {"*"},
    "secrets": {"*"},
}  # fmt: skip

ROOMS = {"clock.py", "ids.py"}
EXCEPTIONS = {
    "notifiers/outage.py": {"random.random"},  # so that not all come back at one time
    "stores/upkeep.py": {"random.random"},  # the jitter of a lost task's retry
    "upkeep/keeping.py": {"random.random"},  # so that not all sweep at one time
    "work/attempt.py": {"random.random"},  # the jitter of a retry
    "work/looking.py": {"random.random"},  # so that not all poll at one time
    "stores/postgres/driver.py": {"random.random"},  # how long to step aside after a deadlock
}

SQL_TIME = re.compile(
    r"\b(?:now|clock_timestamp|statement_timestamp|transaction_timestamp|unixepoch|random|randomblob"
    r"|gen_random_uuid|julianday)\(\s*(?:\d+\s*)?\)"
    r"|\b(?:current_timestamp|current_time|current_date|localtimestamp|localtime)\b"
    r"|'now'",
    re.IGNORECASE,
)


def readings(source: str) -> Iterator[str]:
    """Every use of a banned name, as `module.name`."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        match node:
            case (
                ast.Attribute(value=ast.Name(id=owner), attr=name)
                | ast.Attribute(value=ast.Attribute(attr=owner), attr=name)
            ):
                found = [(owner, name)]
            case ast.ImportFrom(module=str(owner), names=names):
                found = [(owner, name.name) for name in names]
            case _:
                continue
        for owner, name in found:
            if {name, "*"} & BANNED.get(owner, set()):
                yield f"{owner}.{name}"


def python_files() -> list[str]:
    return sorted(str(path.relative_to(HOUSE)) for path in HOUSE.rglob("*.py"))


@pytest.mark.parametrize("file", [f for f in python_files() if f not in ROOMS])
def test_no_clock_and_no_chance_outside_their_rooms(file):
    found = set(readings((HOUSE / file).read_text("utf-8")))
    assert found <= EXCEPTIONS.get(file, set())


@pytest.mark.parametrize("file", sorted(EXCEPTIONS))
def test_every_exception_is_still_needed(file):
    assert set(readings((HOUSE / file).read_text("utf-8"))) == EXCEPTIONS[file]


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("import time\ntime.time()", ["time.time"]),
        ("from time import monotonic", ["time.monotonic"]),
        ("import datetime\ndatetime.datetime.now()", ["datetime.now"]),
        ("from datetime import datetime\ndatetime.now(UTC)", ["datetime.now"]),
        ("import random\nrandom.Random(7)", ["random.Random"]),
        ("from random import shuffle", ["random.shuffle"]),
        ("import uuid\nuuid.uuid4()", ["uuid.uuid4"]),
        ("clock.wall()\ntask.time\nuuid.UUID(int=1)", []),
    ],
)
def test_the_ban_sees_what_it_should(source, found):
    assert list(readings(source)) == found


def sql_functions(text: str) -> dict[str, str]:
    """The parts of an SQL file by the function or verb that they belong to."""
    parts = re.split(r"^(?:create function |-- name: )([\w.]+)", text, flags=re.MULTILINE)
    return {"": parts[0], **dict(zip(parts[1::2], parts[2::2], strict=True))}


SQL_ROOMS = {"holdfast.clock", "holdfast.statement_clock", "holdfast.new_id"}
OUR_NOW = re.compile(r"\bnow\(\)")  # on SQLite a function of ours, which asks the store's clock


@pytest.mark.parametrize("file", sorted(str(p.relative_to(HOUSE)) for p in HOUSE.rglob("*.sql")))
def test_no_sql_reads_a_clock_or_rolls_dice_but_the_two_functions_for_it(file):
    text = re.sub(r"--(?! name: ).*", "", (HOUSE / file).read_text("utf-8"))
    if "sqlite" in file:
        text = OUR_NOW.sub("", text)
    found = {name for name, body in sql_functions(text).items() if SQL_TIME.search(body)}
    assert found <= SQL_ROOMS


@pytest.mark.parametrize(
    "sql",
    [
        "select now()",
        "select CLOCK_TIMESTAMP()",
        "default current_timestamp",
        "strftime('%s', 'now')",
        "unixepoch('now')",
        "randomblob(16)",
        "gen_random_uuid()",
    ],
)
def test_the_ban_sees_what_it_should_in_sql(sql):
    assert SQL_TIME.search(sql)


def test_the_ban_lets_pass_what_is_handed_in():
    assert not SQL_TIME.search("select :now, t.now, holdfast.clock(), snow(), unixepoch(t.at)")
