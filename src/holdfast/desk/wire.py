"""Asking an API: a request out, a shape or one of our own errors back."""

import re
from typing import Any, Generic, NoReturn, TypeVar

import msgspec

from holdfast.desk.line import Answer, Line
from holdfast.errors import (
    ChangedMeanwhile,
    HoldfastError,
    InvalidInput,
    NotAStore,
    NotPossible,
    Refused,
    StoreError,
    StoreUnreachable,
)

__all__ = ["PAGE", "Asking", "KeyTaken", "TypeUnknown"]

T = TypeVar("T")
PAGE = 500  # the most that an API answers at once
_ID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")


class _Listed(msgspec.Struct, Generic[T], frozen=True):
    data: list[T]


class KeyTaken(InvalidInput):
    """409: the idempotency key is that of another task."""

    @property
    def existing(self) -> str:
        found = _ID.search(str(self))
        return found[0] if found else "another one"


class TypeUnknown(InvalidInput):
    """422: the other side has no such function."""


class Asking:
    """What all parts of the desk over HTTP share."""

    def __init__(self, line: Line) -> None:
        self._line = line

    async def _many(self, method: str, path: str, kind: type[T], **more: Any) -> list[T]:
        found: _Listed[T] = await self._one(method, path, _Listed[kind], **more)  # type: ignore[valid-type]
        return found.data

    async def _one(
        self,
        method: str,
        path: str,
        kind: type[T],
        *,
        query: dict[str, Any] | None = None,
        body: Any = None,
        of: HoldfastError | None = None,
        patience: float = 0.0,
        headers: dict[str, str] | None = None,
        key: str | None = None,
    ) -> T:
        """`of`: what it means that nobody knows the thing that was asked for; `key`: asked twice
        with the same, it is done once."""
        data = None if body is None else msgspec.json.encode(body)
        if key is not None:
            headers = {**(headers or {}), "Idempotency-Key": _line_of(key)}
        answer = await self._line.ask(
            method, path, query=query, body=data, patience=patience, headers=headers
        )
        if not 200 <= answer.status < 300:
            self._raise(answer, of)
        try:
            return msgspec.json.decode(answer.body, type=kind)
        except msgspec.DecodeError:
            raise self._no_api() from None

    def _raise(self, answer: Answer, of: HoldfastError | None) -> NoReturn:
        problem = answer.problem()
        said = problem.detail or problem.title or f"status {answer.status}"
        match answer.status, problem.code:
            case 404, "not_found" if of is not None:
                raise of
            case 409, "key_conflict":
                raise KeyTaken(said)
            case 409, "not_possible":
                raise NotPossible(said)
            case 412, "changed_meanwhile":
                raise ChangedMeanwhile(said)
            case 422, "unknown_type":
                raise TypeUnknown(said)
            case ((401 | 403), _):
                raise Refused(f"{self._line.name} refuses: {said}; see --token-file")
            case ((429 | 502 | 503 | 504), _):
                raise StoreUnreachable(f"{self._line.name}: {said}")
            case ((400 | 409 | 412 | 413 | 415 | 422), code) if code:
                raise InvalidInput(said)
            case status, _ if status >= 500:
                raise StoreError(f"{self._line.name}: {said}")
        raise self._no_api()

    def _no_api(self) -> NotAStore:
        return NotAStore(
            f"{self._line.name} is no Holdfast API that this release understands; check --api"
        )


def _line_of(key: str) -> str:
    if not (key.isascii() and key.isprintable() and key):
        raise InvalidInput("an idempotency key is a line of ASCII characters")
    return key
