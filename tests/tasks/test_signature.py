"""Calls as bytes, checked against the function's signature, and back."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from functools import wraps
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, TypedDict
from uuid import UUID

import msgspec
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import InvalidInput, PayloadRefused
from holdfast.tasks.signature import Signature

if TYPE_CHECKING:
    from nowhere import Unknown  # type: ignore[import-not-found]


@dataclass
class Point:
    x: int
    day: date


class Order(msgspec.Struct):
    id: UUID
    price: Decimal


class Customer(pydantic.BaseModel):
    name: str
    since: date


class Colour(Enum):
    RED = "red"


class Pair(NamedTuple):
    left: int
    right: date


class Options(TypedDict):
    when: datetime


def round_trip(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """What the function gets when it is called through the payload."""
    signature = Signature(function)
    got, named = signature.unpack(signature.pack(args, kwargs))
    return function(*got, **named)


def plain(a, b=2, *rest, c=3, **others):
    return a, b, rest, c, others


@pytest.mark.parametrize(
    ("args", "kwargs"),
    [
        ((1,), {}),
        ((), {"a": 1}),
        ((1,), {"c": 5}),
        ((1, 2, 3, 4), {}),
        ((1, 2, 3), {"c": 4, "d": 5}),
        ((), {"a": 1, "b": 7, "z": None}),
    ],
)
def test_every_way_to_call_arrives_as_it_was_meant(args, kwargs):
    assert round_trip(plain, *args, **kwargs) == plain(*args, **kwargs)


def test_positional_only_names_may_come_again_as_keywords():
    def function(a, /, **others):
        return a, others

    assert round_trip(function, 1, a=2) == (1, {"a": 2})


def test_keyword_only_and_positional_only_by_their_annotations():
    def function(a: date, /, b: date, *rest: date, c: date, **others: date):
        assert all(type(each) is date for each in (a, b, *rest, c, *others.values()))
        return [a, b, *rest, c, *others.values()]

    days = [date(2024, 1, n) for n in range(1, 7)]
    assert round_trip(function, *days[:4], c=days[4], d=days[5]) == days


@pytest.mark.parametrize(
    "kwargs", [{"a": 1, "b": 2, "c": 3}, {"c": 3, "a": 1, "b": 2}, {"b": 2, "c": 3, "a": 1}]
)
def test_equal_calls_are_equal_bytes_however_they_are_spelled(kwargs):
    signature = Signature(plain)
    assert signature.pack((), kwargs) == signature.pack((1, 2), {"c": 3})
    assert signature.pack((1,), {"b": 2, "c": 3}) == signature.pack((1, 2), {"c": 3})


def test_equal_dicts_and_sets_are_equal_bytes():
    signature = Signature(plain)
    assert signature.pack(({"x": 1, "y": 2},), {}) == signature.pack(({"y": 2, "x": 1},), {})
    assert signature.pack(({"x", "y"},), {}) == signature.pack(({"y", "x"},), {})


def test_a_default_that_was_not_given_is_taken_when_it_runs():
    payload = Signature(plain).pack((1,), {})
    assert json.loads(payload) == {"args": [1], "kwargs": {}}


@pytest.mark.parametrize(
    ("args", "kwargs", "said"),
    [
        ((), {}, "missing a required argument: 'a'"),
        ((1,), {"a": 1}, "multiple values for argument 'a'"),
    ],
)
def test_a_bad_call_is_refused_where_it_is_made(args, kwargs, said):
    with pytest.raises(InvalidInput, match=said) as raised:
        Signature(plain).pack(args, kwargs)
    assert "it is called as plain(a, b=2, *rest, c=3, **others)" in str(raised.value)


def test_arguments_are_checked_by_their_annotations_where_the_call_is_made():
    def function(count: int, day: date = date(2024, 1, 1)) -> None: ...

    with pytest.raises(PayloadRefused, match=r"function\(count: int.* count: .*type str"):
        Signature(function).pack(("many",), {})
    with pytest.raises(PayloadRefused, match="arguments of function"):
        Signature(function).pack((1,), {"day": "someday"})
    with pytest.raises(InvalidInput, match="unexpected keyword argument 'days'"):
        Signature(function).pack((1,), {"days": 1})
    with pytest.raises(InvalidInput, match="too many positional arguments"):
        Signature(function).pack((1, date(2024, 1, 1), 3), {})


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (date, date(2024, 2, 29)),
        (datetime, datetime(2024, 2, 29, 12, 30, tzinfo=UTC)),
        (time, time(12, 30)),
        (timedelta, timedelta(days=1, microseconds=5)),
        (Decimal, Decimal("1.10")),
        (UUID, UUID(int=5)),
        (bytes, b"\x00\xff"),
        (Point, Point(1, date(2024, 1, 1))),
        (Order, Order(UUID(int=1), Decimal("9.99"))),
        (Customer, Customer(name="Ada", since=date(1815, 12, 10))),
        (list[Customer], [Customer(name="Ada", since=date(1815, 12, 10))]),
        (Colour, Colour.RED),
        (Pair, Pair(1, date(2024, 1, 1))),
        (Options, {"when": datetime(2024, 1, 1, tzinfo=UTC)}),
        (set[int], {1, 2, 3}),
        (frozenset[str], frozenset({"a"})),
        (tuple[int, date], (1, date(2024, 1, 1))),
        (dict[str, list[UUID]], {"a": [UUID(int=1)]}),
        (dict[int, date], {5: date(2024, 1, 1)}),
        (int | None, None),
        (date | None, date(2024, 1, 1)),
        (Literal["a", "b"], "b"),
        (Annotated[int, msgspec.Meta(ge=0)], 5),
        (int, 2**63),
        (str, "\U0001f600 é \u0000"),
        (float, 0.1),
        (Any, {"a": [1, None, True, "x", 1.5]}),
    ],
)
def test_values_come_back_as_annotated(kind, value):
    def function(value):
        return value

    function.__annotations__ = {"value": kind, "return": kind}
    got = round_trip(function, value)
    assert got == value
    assert type(got) is type(value)
    assert round_trip(function, value=value) == value
    payload = json.loads(Signature(function).pack((value,), {}))["args"][0]
    assert Signature(function).result(json.dumps(payload).encode()) == value


@pytest.mark.parametrize("value", [object(), float("nan"), "\ud800", lambda: 1, "x" * 2_000_000])
def test_what_has_no_form_as_json_is_refused(value):
    with pytest.raises(PayloadRefused):
        Signature(plain).pack((value,), {})


def test_an_argument_that_cannot_be_stored_is_named_with_its_function():
    def mix(a, /, b, *more, c=None, **others): ...

    for args, kwargs, name in (
        ((object(), 1), {}, "a"),
        ((1, float("nan")), {}, "b"),
        ((1,), {"b": object()}, "b"),
        ((1, 2, 3, object()), {}, r"\*more"),
        ((1, 2), {"c": "x" * 2_000_000}, "c"),
        ((1, 2), {"d": {"deep": object()}}, "d"),
    ):
        with pytest.raises(PayloadRefused, match=rf"^argument {name} of mix\(a, /, b, .*\): "):
            Signature(mix).pack(args, kwargs)
    with pytest.raises(PayloadRefused, match="of type object"):
        Signature(mix).pack((object(), 1), {})
    with pytest.raises(PayloadRefused, match=r"^arguments of mix\(.*over the limit"):
        Signature(mix).pack(("x" * 600_000, "x" * 600_000), {})  # each alone would fit


def test_an_annotation_that_says_more_is_heeded():
    def function(count: Annotated[int, msgspec.Meta(ge=0)]) -> None: ...

    with pytest.raises(PayloadRefused, match=">= 0"):
        Signature(function).pack((-1,), {})


def test_forward_references_are_resolved_when_they_are_needed():
    def function(later: "Later", day: "date") -> Any:  # type: ignore[name-defined]  # noqa: F821
        return later

    signature = Signature(function)

    class Here(msgspec.Struct):
        day: date

    globals()["Later"] = Here
    try:
        ((later, day), _) = signature.unpack(
            signature.pack((Here(date(2024, 1, 1)), "2024-01-02"), {})
        )
    finally:
        del globals()["Later"]
    assert later == Here(date(2024, 1, 1))
    assert day == date(2024, 1, 2)


def test_a_name_that_only_a_type_checker_knows_takes_no_other_with_it():
    def function(what: "Unknown", day: "date") -> "Unknown":
        return what, day

    assert round_trip(function, {"a": 1}, date(2024, 1, 1)) == ({"a": 1}, date(2024, 1, 1))


def test_a_wrapped_function_is_called_as_what_it_wraps():
    def decorated(function: Any) -> Any:
        @wraps(function)
        def around(*args: Any, **kwargs: Any) -> Any:
            return function(*args, **kwargs)

        return around

    @decorated
    def function(day: date, *, days: int = 1) -> date:
        return day + timedelta(days=days)

    assert round_trip(function, date(2024, 1, 1), days=2) == date(2024, 1, 3)
    with pytest.raises(InvalidInput, match="missing a required argument: 'day'"):
        Signature(function).pack((), {})


@pytest.mark.parametrize(
    "payload",
    [
        b"", b"null", b"[]", b"5", b"{", b'{"args":5}', b'{"args":[],"kwargs":[]}', b"\xff",
        b'{"args":[1,2]}', b'{"args":[]}', b'{"kwargs":{"b":1}}', b'{"args":["x"]}',
        b'{"args":[1],"kwargs":{"a":1}}', b'{"args":[' + b"[" * 200 + b"]" * 200 + b"]}",
    ],
)  # fmt: skip
def test_stored_arguments_that_do_not_fit_are_refused_and_nothing_else_is_raised(payload):
    def function(a: int) -> None: ...

    with pytest.raises(PayloadRefused):
        Signature(function).unpack(payload)


def test_a_keyword_that_must_be_given_is_missed():
    def function(*, a: int) -> None: ...

    with pytest.raises(PayloadRefused, match="missing a required"):
        Signature(function).unpack(b"{}")


def test_the_value_of_an_argument_is_known_however_it_was_given():
    signature = Signature(plain)
    assert signature.value_of("b", (1,), {}) == 2
    assert signature.value_of("b", (1, 5), {}) == 5
    assert signature.value_of("a", (), {"a": 7}) == 7
    assert signature.has("c")
    assert not signature.has("d")


@given(
    st.lists(st.integers(-5, 5), max_size=5),
    st.dictionaries(st.sampled_from("abcdef"), st.integers(-5, 5), max_size=5),
)
def test_a_call_is_accepted_exactly_if_python_accepts_it(args, kwargs):
    def function(a, /, b=1, c=2, *rest, d=3, **others):
        return a, b, c, rest, d, others

    try:
        expected = function(*args, **kwargs)
    except TypeError:
        with pytest.raises(InvalidInput):
            Signature(function).pack(args, kwargs)
    else:
        assert round_trip(function, *args, **kwargs) == expected
