"""Arguments and results as bounded JSON: what goes in comes back, the rest is refused."""

import dataclasses
import enum
import math
import os
import subprocess
import sys
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any, NamedTuple
from uuid import UUID

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.errors import PayloadRefused
from holdfast.tasks.payload import MAX_DEPTH, MAX_SIZE, check_payload, decode, encode


class Colour(enum.Enum):
    RED = "red"


class Point(NamedTuple):
    x: int
    y: int


class Line(msgspec.Struct):
    sku: str
    price: Decimal


@dataclasses.dataclass
class Order:
    id: UUID
    placed: datetime
    lines: list[Line]
    note: bytes | None = None


ORDER = Order(
    id=UUID(int=7),
    placed=datetime(2024, 2, 29, 23, 59, 59, 999_999, tzinfo=UTC),
    lines=[Line("a", Decimal("0.10")), Line("b", Decimal("1e3"))],
    note=b"\x00\xff",
)

VALUES: list[tuple[Any, Any]] = [
    (None, None),
    (True, bool),
    (-(2**63) - 1, int),
    (2**64, int),
    (10**4000, int),
    (0.1, float),
    (-0.0, float),
    (5e-324, float),
    ("", str),
    ('NUL \0, quote ", back \\, newline \n, 語, 🙂, \u2028', str),
    (b"\x00\x01\xff", bytes),
    (datetime(1, 1, 1, tzinfo=UTC), datetime),
    (datetime(2024, 5, 1, 12, 0, 0, 1, tzinfo=timezone(timedelta(hours=5.5))), datetime),
    (datetime(2024, 5, 1, 12), datetime),  # noqa: DTZ001
    (date(9999, 12, 31), date),
    (time(23, 59, 59, 1), time),
    (timedelta(days=1, microseconds=1), timedelta),
    (Decimal("0.10"), Decimal),
    (Decimal("1" * 60), Decimal),
    (UUID(int=2**128 - 1), UUID),
    (Colour.RED, Colour),
    ((1, "a"), tuple[int, str]),
    ({3, 1, 2}, set[int]),
    (frozenset({"b", "a"}), frozenset[str]),
    (Point(1, 2), Point),
    ({1: "a", 2: "b"}, dict[int, str]),
    ({date(2024, 1, 1): 1}, dict[date, int]),
    ({"a": [{"b": (date(2024, 1, 1), None)}]}, dict[str, list[dict[str, tuple[date, None]]]]),
    (ORDER, Order),
    ([ORDER, ORDER], list[Order]),
]


@pytest.mark.parametrize(("value", "type"), VALUES, ids=range(len(VALUES)))
def test_a_value_comes_back_as_its_annotation_says(value, type):
    assert decode(encode(value), type) == value


def test_a_key_that_is_no_text_comes_back_as_its_annotation_says_or_as_text():
    assert decode(encode({1: 2}), dict[int, int]) == {1: 2}
    assert decode(encode({1: 2})) == {"1": 2}


def test_without_an_annotation_plain_values_come_back():
    value = {"a": [1, 2.5, "x", None, True, {"b": []}]}
    assert decode(encode(value)) == value


scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"]))
)
trees = st.recursive(
    scalars, lambda inner: st.lists(inner) | st.dictionaries(st.text("ab\0語"), inner)
)


@given(trees)
def test_every_plain_value_comes_back(value):
    assert decode(encode(value)) == value


@given(st.dictionaries(st.text(), st.integers(0, 9)))
def test_equal_dicts_are_equal_bytes_in_whatever_order_they_were_made(value):
    try:
        data = encode(value)
    except PayloadRefused:
        return  # half a surrogate pair among the keys
    assert encode(dict(reversed(value.items()))) == data


CYCLE: list[Any] = []
CYCLE.append(CYCLE)
NAN = math.nan

REFUSED: list[tuple[Any, str]] = [
    (NAN, "NaN"),
    (math.inf, "NaN and infinity"),
    ([1, {"a": (None, -math.inf)}], "NaN"),
    ({"a": {1.5, NAN}}, "NaN"),
    (dataclasses.make_dataclass("Bad", ["x"])(NAN), "NaN"),
    ("\ud800", "cannot be stored"),
    ({"\udfff": 1}, "cannot be stored"),
    (10**5000, "cannot be stored"),
    (object(), "cannot be stored as JSON"),
    (lambda: 1, "Use plain types"),
    ({(1, 2): 3}, "cannot be stored"),
    ({None: 1}, "cannot be stored"),
    (1j, "cannot be stored"),
    (print, "cannot be stored"),
    (ValueError("x"), "cannot be stored"),
    ("x" * MAX_SIZE, "over the limit of 1,048,576"),
    (b"x" * MAX_SIZE, "over the limit"),
    (CYCLE, "at most 100 levels"),
]


@pytest.mark.parametrize(("value", "says"), REFUSED, ids=range(len(REFUSED)))
def test_what_json_cannot_hold_is_refused(value, says):
    with pytest.raises(PayloadRefused, match=says):
        encode(value)


def test_a_null_beside_numbers_is_no_nan():
    assert encode([None, 1.5, "null", {"null": None}]) == b'[null,1.5,"null",{"null":null}]'


def nested(depth: int) -> bytes:
    return b"[" * depth + b"]" * depth


def test_depth_is_allowed_up_to_the_limit_and_no_further():
    assert decode(nested(MAX_DEPTH))
    for depth in (MAX_DEPTH + 1, 10_000, 100_000):
        with pytest.raises(PayloadRefused, match="at most 100 levels deep"):
            decode(nested(depth))
    deep: Any = 1
    for _ in range(MAX_DEPTH):
        deep = {"a": deep}
    assert decode(encode(deep)) == deep
    with pytest.raises(PayloadRefused, match="at most 100 levels deep"):
        encode([deep])


def test_brackets_inside_texts_do_not_count():
    value = ["[{" * 500, '"' + "[" * 500 + "\\", {"[[": '\\"[['}]
    assert decode(encode(value)) == value


def test_many_brackets_side_by_side_are_not_deep():
    value: list[Any] = [[] for _ in range(10_000)]
    assert decode(encode(value)) == value


def test_size_is_allowed_up_to_the_limit_and_no_further():
    assert check_payload(b" " * MAX_SIZE)
    with pytest.raises(PayloadRefused, match="store the data elsewhere"):
        check_payload(b" " * (MAX_SIZE + 1))


@pytest.mark.parametrize("tail", [b'"\\' * 500_000, b'"\\' * 500_000 + b"\\", b'"' * 1_000_001])
@pytest.mark.timeout(20)
def test_hostile_quotes_cost_no_more_than_others(tail):
    with pytest.raises(PayloadRefused, match="deep"):
        check_payload(b"[" * 101 + tail)


@pytest.mark.parametrize(
    ("data", "type"),
    [
        (b"", Any), (b"{", Any), (b"nope", Any), (b"NaN", Any), (b"1e999", Any), (b"\xff", Any),
        (b'"\\ud800"', Any), (b'"\xed\xa0\x80"', Any), (b"1" * 5000, Any), (b"1 2", Any),
        (b'"x"', int), (b"{}", Order), (b'"2024-13-01"', date), (b'"x"', UUID),
        (b"[1]", tuple[int, int]),
        (b'"!"', bytes), (b'"blue"', Colour), (b"null", int), (b"1", {"not": "a type"}),
        (b"1", "int"),
    ],
)  # fmt: skip
def test_stored_bytes_that_do_not_fit_are_refused_in_our_words(data, type):
    with pytest.raises(PayloadRefused):
        decode(data, type)


PIECES = [*rb'[ ] { } " \ , : 1 e9 - null \u d800'.split(), b"\xff", b"\0", b" "]
json_like = st.lists(st.sampled_from(PIECES)).map(b"".join)


@given(st.binary() | json_like, st.sampled_from([Any, int, list[str], Order, dict[int, date], set]))
@settings(max_examples=500)
def test_no_bytes_raise_anything_but_our_refusal(data, type):
    try:
        value = decode(data, type)
    except PayloadRefused:
        return
    assert decode(encode(value), type) == value


def test_equal_values_are_equal_bytes_in_every_process() -> None:
    """Their digests tell whether a call is the same as one before, perhaps in another process."""
    code = (
        "from holdfast.tasks.payload import encode\n"
        "print(encode({2: {'a', 'b', 'c', 'd'}, 10: {'x': {'p', 'q', 'r'}}, 1: 0}).decode())"
    )
    found = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": str(seed)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in range(4)
    }
    assert found == {'{"1":0,"10":{"x":["p","q","r"]},"2":["a","b","c","d"]}\n'}


def test_keys_that_are_one_as_json_are_refused():
    for value in ({1: 2, "1": 3}, [{"a": {2.5: 0, "2.5": {3, 4}}}]):
        with pytest.raises(PayloadRefused, match="two keys of a dict are one as JSON"):
            encode(value)
    assert encode({1: "ä\n", "2": 0.1, UUID(int=3): b"\0"}) == (
        b'{"00000000-0000-0000-0000-000000000003":"AA==","1":"\xc3\xa4\\n","2":0.1}'
    )
