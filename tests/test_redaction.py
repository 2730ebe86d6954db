"""Fields that nobody should see."""

import base64
import json

import msgspec
import pytest

from holdfast.redaction import HIDDEN, Redaction, scrub

plain = Redaction()


def hidden(value: object, *places: str) -> object:
    return msgspec.json.decode(plain.hide(msgspec.json.encode(value), places))


def test_named_fields_are_hidden_wherever_they_stand() -> None:
    shown = hidden({"user": "ann", "Password": "x", "deep": [{"api-key": [1, 2]}], "tokens": 3})
    assert shown == {"user": "ann", "Password": HIDDEN, "deep": [{"api-key": HIDDEN}], "tokens": 3}


def test_positional_arguments_are_known_by_their_names() -> None:
    call = {"args": ["ann", "s3cret"], "kwargs": {"token": "abc"}}
    assert hidden(call, "user", "password") == {
        "args": ["ann", HIDDEN],
        "kwargs": {"token": HIDDEN},
    }
    assert plain.values(msgspec.json.encode(call), ("user", "password")) == {"s3cret"}


def test_positional_arguments_without_names_are_hidden_all() -> None:
    call = msgspec.json.encode({"args": ["ann", {"a": 1}], "kwargs": {"b": 2}})
    found = msgspec.json.decode(plain.hide(call, None))
    assert found == {"args": [HIDDEN, HIDDEN], "kwargs": {"b": 2}}


def test_their_texts_are_all_looked_for_but_what_stands_anywhere_by_chance() -> None:
    args = ["ann", "annabel", {"a": ["deep down"]}, 12345, 12, True]
    call = msgspec.json.encode({"args": args, "kwargs": {"b": "not hidden"}})
    assert plain.values(call, None) == {"annabel", "deep down", "12345"}
    assert plain.values(call, ()) == plain.values(call, ("name",)) == frozenset()


def test_what_has_no_such_field_is_byte_for_byte_what_it_was() -> None:
    data = b'{"a":  1.0, "b": [12345678901234567890]}'
    assert plain.hide(data) is data
    assert plain.hide(b"no json") == b"no json"


def test_more_names_can_be_given() -> None:
    data = b'{"card": {"number": "4111 1111"}}'
    assert Redaction(["card"]).values(data) == {"4111 1111"}
    assert plain.values(data) == frozenset()


@pytest.mark.parametrize("values", [["abcd", "abcdef"], ["abcdef", "abcd"]])
def test_a_secret_within_a_secret_leaves_nothing(values: list[str]) -> None:
    assert scrub("x abcdef y abcd", values) == f"x {HIDDEN} y {HIDDEN}"


PEM = "-----BEGIN KEY-----\nMIIB'\"\\x\nqrst\n-----END KEY-----\n"


QUOTED = "-----BEGIN KEY-----\nMIIB'x\nqrst"  # whose quote is escaped only beside another


@pytest.mark.parametrize("secret", [PEM, QUOTED, f"é{PEM}"])
def test_a_secret_of_lines_and_quotes_is_found_also_where_they_are_escaped(secret: str) -> None:
    found = plain.values(msgspec.json.encode({"private_key": secret}))
    told = [secret, repr(secret), repr({"key": [secret]}), repr(f'key="{secret}"')]
    told += [json.dumps(secret), msgspec.json.encode(secret).decode()]
    for said in told:
        hidden = scrub(said, found)
        assert HIDDEN in hidden
        assert not any(part in hidden for part in ("BEGIN", "MIIB", "qrst"))


@pytest.mark.parametrize("secret", [b"hunter2-hunter2", b"hun'ter\nter2\xff"])
def test_a_secret_given_as_bytes_is_found_however_it_is_told(secret: bytes) -> None:
    """In JSON it stands as base64."""
    found = plain.values(msgspec.json.encode({"args": [secret]}), ("token",))
    encoded = base64.b64encode(secret).decode()
    decoded = secret.decode("utf-8", "backslashreplace")
    for said in (repr(secret), repr(bytearray(secret)), encoded, decoded, json.dumps(decoded)):
        hidden = scrub(f"sent {said}", found)
        assert HIDDEN in hidden
        assert not any(part in hidden for part in ("hun", "ter2", encoded[4:12]))
