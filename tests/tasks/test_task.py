"""A task as it is asked for is checked when it is born; an error is bounded and plain."""

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import InvalidInput, PayloadRefused
from holdfast.tasks.lane import Lane
from holdfast.tasks.task import Draft, Failure

ID = UUID(int=1)


def draft(**fields: Any) -> Draft:
    return Draft(**{"id": ID, "type": "shop:charge", **fields})


def test_a_draft_needs_only_an_id_and_a_type():
    assert draft().lane == Lane(queue="default", type="shop:charge")


def test_a_full_draft_is_accepted():
    full = draft(
        payload=b"[1]", queue="vip", version="2", tags=("a", "b"), requires=("gpu",), tenant="acme",
        priority=-5, delay=timedelta(hours=1), expires=timedelta(days=1), max_tries=1,
        key="order 7", unique="while_pending", concurrency_key="user 3", parent=UUID(int=2),
        user_id="Ann O'Neill, ü",
    )  # fmt: skip
    assert full.lane == Lane(
        queue="vip",
        type="shop:charge",
        version="2",
        tags=("a", "b"),
        requires=("gpu",),
        tenant="acme",
    )


BAD: dict[tuple[str, str], list[Any]] = {
    ("type", "type"): ["", "a b", None, "x" * 201, "a\0"],
    ("queue", "queue"): ["", "a\0", "-x", 3, None, "é"],
    ("tenant", "tenant"): ["", "a\ud800", None],
    ("version", "version"): ["1 2", "v" * 129],
    ("priority", "priority"): [32_001, -32_001, 1.5, True, 10**40, "1", None],
    ("payload", "over the limit"): [b" " * 1_048_577],
    ("payload", "deep"): [b"[" * 101],
    ("tags", "sorted and each once"): [("b", "a"), ("a", "a")],
    ("tags", "tag"): [("no good",), "eu", tuple(f"{n:02}" for n in range(17))],
    ("requires", "sorted and each once"): [("b", "a")],
    ("requires", "requirement"): [("",), (None,)],
    ("delay", "delay"): [timedelta(seconds=-1), 5, timedelta.max],
    ("expires", "expires"): [timedelta(seconds=-1), "1d", timedelta.max],
    ("run_at", "time zone"): [datetime(2030, 1, 1)],  # noqa: DTZ001
    ("max_tries", "max_tries"): [0, -1, 32_001, 1.5, True, "3"],
    ("key", "idempotency key"): ["", "x" * 256, "a\0", "\udc00", 7],
    ("unique", "while_kept or while_pending"): ["always", None],
    ("concurrency_key", "concurrency key"): ["", "\0", "x" * 256, 7],
    ("user_id", "user_id must be a text of 1 to 200"): ["", "x" * 201, 7, b"ann"],
    ("user_id", "control character"): ["a\0", "a\nb", "\x7f", "\x9b31m", "\udc00"],
}


@pytest.mark.parametrize(
    ("field", "value", "says"),
    [(field, value, says) for (field, says), values in BAD.items() for value in values],
)
def test_a_bad_field_is_refused_by_name(field, value, says):
    with pytest.raises(InvalidInput, match=says):
        draft(**{field: value})


def test_a_time_and_a_delay_together_are_refused():
    with pytest.raises(InvalidInput, match="instead of a delay"):
        draft(run_at=datetime(2030, 1, 1, tzinfo=UTC), delay=timedelta(seconds=1))


def test_a_payload_that_is_too_large_is_a_refused_payload():
    with pytest.raises(PayloadRefused):
        draft(payload=b"x" * 2_000_000)


def test_the_fingerprint_knows_type_and_payload_and_nothing_else():
    mark = draft().fingerprint
    assert len(mark) == 16
    assert draft(id=UUID(int=9), priority=3, queue="vip", user_id="ann").fingerprint == mark
    assert draft(type="shop:refund").fingerprint != mark
    assert draft(payload=b"1").fingerprint != mark
    assert draft(type="a", payload=b"b").fingerprint != draft(type="ab", payload=b"").fingerprint


@pytest.mark.parametrize(
    ("message", "kept"),
    [
        ("", ""),
        ("plain", "plain"),
        ("a\0b", "a�b"),
        ("half \ud800 pair", "half ? pair"),
        ("語 🙂 \u202e", "語 🙂 \u202e"),
        ("x" * 4000, "x" * 4000),
        ("x" * 4001, "x" * 3999 + "…"),
        ("\0" * 10_000_000, "�" * 3999 + "…"),
    ],
)
def test_an_error_text_is_bounded_and_plain(message, kept):
    assert Failure(type="E", message=message).message == kept


@given(st.text(st.characters()) | st.text("\0\ud800\udfffa", min_size=1))
def test_every_error_text_can_be_stored_everywhere(text):
    failure = Failure(type=text * 50, message=text * 500)
    for kept, most in ((failure.type, 200), (failure.message, 4000)):
        assert len(kept) <= most
        assert "\0" not in kept
        assert kept.encode().decode() == kept


def test_bounding_twice_changes_nothing():
    once = Failure(type="E\0" * 200, message="m\ud800" * 4000)
    assert Failure(type=once.type, message=once.message) == once


def test_a_failure_tells_its_notes_its_parts_and_what_it_came_from() -> None:
    detail = (
        b'{"traceback": "  File a.py\\n", "notes": ["at the till"],'
        b' "parts": [{"type": "OSError", "message": "gone"}],'
        b' "causes": [{"type": "KeyError", "message": "7", "traceback": "  File b.py\\n"}]}'
    )
    assert Failure(type="Boom", message="no", detail=detail).traceback == (
        "  File a.py\nnote: at the till\nin it: OSError: gone\ncaused by KeyError: 7\n  File b.py\n"
    )
    assert Failure(type="Boom", message="no", detail=b"{}").traceback is None
