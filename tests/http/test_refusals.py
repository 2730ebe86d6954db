"""What is refused, and how: always as a problem, never with what is inside."""

import gc
import resource
from typing import Any

import httpx
import pytest

from holdfast import Holdfast
from holdfast.http.bounds import MAX_BODY, check_nesting
from holdfast.http.problems import Problem
from tests.http.conftest import asking, code

JSON = {"Content-Type": "application/json"}


async def nothing_was_made(http: httpx.AsyncClient) -> bool:
    return not (await http.get("/v1/tasks")).json()["data"]


async def test_unknown_paths_and_methods_are_problems(here):
    for path in ("/nowhere", "/v1", "/v1/tasks/", "/v2/tasks", "/docs", "/"):
        answer = await here.get(path)
        assert (answer.status_code, code(answer)) == (404, "not_found")
    answer = await here.delete("/v1/tasks")
    assert (answer.status_code, code(answer)) == (405, "method_not_allowed")
    assert answer.headers["allow"] == "GET, HEAD, POST"
    assert (await here.head("/v1/events")).status_code == 405


async def test_every_answer_forbids_to_be_kept(here):
    for path in ("/v1/tasks", "/nowhere", "/health", "/v1/tasks?limit=x"):
        headers = (await here.get(path)).headers
        assert headers["cache-control"] == "no-store"
        assert headers["x-content-type-options"] == "nosniff"
        assert "access-control-allow-origin" not in headers


@pytest.mark.parametrize(
    "query",
    ["limit=0", "limit=501", "limit=ten", "status=gone", "nobody=1", "limit=1&limit=2",
     "queue=", "queue=" + "x" * 201, "cursor=" + "x" * 2001, "tag=a%00b", "limit=1e3"],
)  # fmt: skip
async def test_a_wrong_parameter_is_named(here, query):
    answer = await here.get(f"/v1/tasks?{query}")
    assert (answer.status_code, code(answer)) == (422, "invalid_parameter")
    assert answer.json()["errors"][0]["parameter"] == query.partition("=")[0]


async def test_a_query_that_is_too_long_is_refused(here):
    answer = await here.get("/v1/tasks?queue=" + "x" * 5000)
    assert (answer.status_code, code(answer)) == (400, "invalid_parameter")


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({}, ""),
        ({"type": 1}, "/type"),
        ({"type": "pay", "tags": ["a", 2]}, "/tags/1"),
        ({"type": "pay", "nobody": 1}, ""),
        ([], ""),
        ("pay", ""),
    ],
)
async def test_a_wrong_body_is_refused_with_a_pointer(here, body, pointer):
    answer = await here.post("/v1/tasks", json=body)
    assert (answer.status_code, code(answer)) == (422, "invalid_body")
    assert answer.json()["errors"][0]["pointer"] == pointer


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"nan",
        b'{"type": "pay", "kwargs": {"order": NaN}}',
        b'{"type": "\xff"}',
        b"\xff\xfe{",
    ],
)
async def test_what_is_not_json_is_refused(here, data):
    answer = await here.post("/v1/tasks", content=data, headers=JSON)
    assert (answer.status_code, code(answer)) == (400, "not_json")


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Content-Type": "text/plain"},
        {"Content-Type": "application/x-www-form-urlencoded"},
        {"Content-Type": "application/jsonp"},
        {"Content-Type": "application/json", "Content-Encoding": "gzip"},
    ],
)
async def test_only_plain_json_is_taken(here, headers):
    answer = await here.post("/v1/tasks", content=b'{"type": "pay"}', headers=headers)
    assert answer.status_code == 415
    code(answer)
    assert await nothing_was_made(here)


async def test_a_body_that_is_too_large_is_refused_by_what_it_says_and_by_what_it_is(here):
    sent = 0

    async def endless() -> Any:
        nonlocal sent
        while True:
            sent += 1
            yield b" " * 65536

    said = await here.post("/v1/tasks", content=b" " * (MAX_BODY + 1), headers=JSON)
    streamed = await here.post("/v1/tasks", content=endless(), headers=JSON)
    for answer in (said, streamed):
        assert (answer.status_code, code(answer)) == (413, "too_large")
    assert sent <= MAX_BODY // 65536 + 2  # it stopped reading


@pytest.mark.parametrize(
    "data",
    [
        b"[" * 1_000_000,
        b'{"a":' * 200_000,
        b'{"type":"pay","kwargs":' + b"[" * 65 + b"]" * 65 + b"}",
    ],
)
async def test_a_body_that_is_too_deep_is_refused_before_it_is_parsed(here, data):
    gc.collect()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    answer = await here.post("/v1/tasks", content=data, headers=JSON)
    assert answer.status_code == 413
    assert code(answer) in ("too_deep", "too_many_parts")
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 64 * 1024  # KiB


def test_nesting_is_counted_outside_of_texts_only():
    check_nesting(b'{"a": "' + b"[" * 100 + b'\\"' + b"{" * 100 + b'"}')
    check_nesting(b"[" * 64 + b"]" * 64)
    with pytest.raises(Problem, match="nested"):
        check_nesting(b"[" * 65 + b"]" * 65)
    with pytest.raises(Problem, match="values"):
        check_nesting(b"[" + b"1," * 100_001 + b"1]")


async def test_a_number_of_a_million_digits_harms_nobody(here):
    data = b'{"type": "pay", "kwargs": {"order": ' + b"9" * 1_000_000 + b"}}"
    answer = await here.post("/v1/tasks", content=data, headers=JSON)
    assert answer.status_code in (400, 422)
    code(answer)


async def test_a_batch_has_its_bound(here):
    wish = {"type": "pay", "kwargs": {"order": 1}}
    answer = await here.post("/v1/tasks/batch", json={"tasks": [wish] * 1001})
    assert (answer.status_code, code(answer)) == (422, "invalid_body")
    assert await nothing_was_made(here)


async def test_a_failure_inside_is_told_to_the_log_only(local: Holdfast, monkeypatch, caplog):
    async def broken(*_: object) -> None:
        raise RuntimeError("the password is hunter2")

    monkeypatch.setattr(local, "desk", broken)
    async with asking(local) as http:
        answer = await http.get("/v1/tasks")
    assert (answer.status_code, code(answer)) == (500, "internal")
    assert "hunter2" not in answer.text
    assert "hunter2" in caplog.text
