"""Payloads that only their owners can read."""

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import InvalidInput, Sealed
from holdfast.ids import new_id
from holdfast.sealing import KeyRing

OLD, NEW = bytes(range(32)), bytes(range(1, 33))
ring = KeyRing({"old": OLD})
TASK = new_id()


@given(st.binary(max_size=2000))
def test_what_is_sealed_opens_again_and_shows_nothing(data: bytes) -> None:
    sealed = ring.seal(data, TASK, "payload")
    assert ring.open(sealed, TASK, "payload") == data
    assert len(data) < 8 or data not in base64.b64decode(sealed[17:-1] + b"==", validate=False)
    assert sealed == ring.seal(data, TASK, "payload"), "asked again it is the same"


def test_it_opens_only_where_it_belongs() -> None:
    sealed = ring.seal(b"{}", TASK, "payload")
    for task, place in [(new_id(), "payload"), (TASK, "result")]:
        with pytest.raises(Sealed):
            ring.open(sealed, task, place)
    assert ring.seal(b"{}", new_id(), "payload") != sealed
    for n in range(len(sealed) - 12, len(sealed) - 2):
        altered = sealed[:n] + (b"A" if sealed[n : n + 1] != b"A" else b"B") + sealed[n + 1 :]
        with pytest.raises(Sealed):
            ring.open(altered, TASK, "payload")


def test_keys_are_replaced_one_by_one() -> None:
    sealed = ring.seal(b"1", TASK, "payload")
    both = KeyRing({"new": NEW, "old": OLD})
    assert both.open(sealed, TASK, "payload") == b"1"
    assert both.seal(b"1", TASK, "payload").startswith(b'"hf:sealed:1:new:')
    assert both.fingerprint(b"1") == ring.fingerprint(b"1")
    with pytest.raises(Sealed, match="key b'old', which is not in the ring"):
        KeyRing({"new": NEW}).open(sealed, TASK, "payload")


def test_what_was_never_sealed_is_as_it_is() -> None:
    assert ring.open(b'{"args": []}', TASK, "payload") == b'{"args": []}'


def test_a_ring_is_read_from_text() -> None:
    made = KeyRing.make()
    assert KeyRing.parse(f" a:{made} ,b:{KeyRing.make()}").seal(b"1", TASK, "x")
    for bad in ("", "a", "a:!!", "a:" + base64.b64encode(b"short").decode(), "a b:" + made):
        with pytest.raises(InvalidInput):
            KeyRing.parse(bad)
    assert made not in repr(KeyRing.parse(f"a:{made}"))


@pytest.mark.parametrize("wrong", ["one {}", "{}:one", "{}", "one:two:{}", "one:{}x", "one:{0}{0}"])
def test_a_ring_that_is_written_wrong_is_refused_without_being_repeated(wrong: str) -> None:
    key = KeyRing.make()
    with pytest.raises(InvalidInput) as error:
        KeyRing.parse(wrong.format(key))
    assert key[:20] not in str(error.value)
