"""Exceptions that do not want to become data."""

import itertools
from collections.abc import Callable
from typing import Any, NoReturn

from holdfast.errors import LeaseLost, UnknownTask

EVIL: dict[str, Callable[[], BaseException]] = {}


def evil(make: Callable[[], BaseException]) -> Callable[[], BaseException]:
    EVIL[make.__name__] = make
    return make


def raise_evil(name: str) -> NoReturn:
    raise EVIL[name]()


class StrRaises(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no")


class StrAndReprRaise(Exception):
    def __str__(self) -> str:
        raise KeyboardInterrupt

    def __repr__(self) -> str:
        raise SystemExit(3)


class StrIsNoText(Exception):
    def __str__(self) -> str:
        return 5  # type: ignore[return-value]


class Text(str):
    __slots__ = ()

    def __len__(self) -> int:
        return -1

    def replace(self, *_: Any) -> str:
        raise RuntimeError("no")


class StrIsOdd(Exception):
    def __str__(self) -> str:
        return Text("x" * 9000)


class OddInit(Exception):
    def __init__(self, a: int, *, b: int) -> None:
        self.a, self.b = a, b


class Unpicklable(Exception):
    def __reduce__(self) -> NoReturn:
        raise TypeError("no")


class ClassRaises(Exception):
    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        raise RuntimeError("no")


class NotesRaise(Exception):
    @property
    def __notes__(self) -> list[str]:  # type: ignore[override]
        raise RuntimeError("no")


class EndlessNotes(Exception):
    __notes__ = itertools.count()  # type: ignore[assignment]


class CauseRaises(Exception):
    @property
    def __cause__(self) -> Any:  # type: ignore[override]
        raise RuntimeError("no")


class Meta(type):
    def __getattribute__(cls, name: str) -> Any:
        if name in ("__qualname__", "__module__", "__name__", "__mro__"):
            raise RuntimeError("no")
        return super().__getattribute__(name)


class MetaRaises(Exception, metaclass=Meta):
    pass


class OwnBase(BaseException):
    pass


class LongName(Exception):
    pass


LongName.__qualname__ = "L" * 100_000


class StopsIteration(StopIteration):
    pass


def chain(length: int, text: str) -> BaseException:
    error: BaseException = ValueError(text)
    for _ in range(length):
        above = ValueError(text)
        above.__cause__ = error
        error = above
    return error


def deep_group(depth: int) -> BaseException:
    error: BaseException = ValueError("leaf")
    for _ in range(depth):
        error = BaseExceptionGroup("group", [error])
    return error


EVIL |= {
    "str raises": StrRaises,
    "str and repr raise": StrAndReprRaise,
    "str is no text": StrIsNoText,
    "str is odd": StrIsOdd,
    "odd init": lambda: OddInit(1, b=2),
    "unpicklable": Unpicklable,
    "class raises": ClassRaises,
    "notes raise": NotesRaise,
    "endless notes": EndlessNotes,
    "cause raises": CauseRaises,
    "metaclass raises": MetaRaises,
    "own base": OwnBase,
    "long name": LongName,
    "keyboard": KeyboardInterrupt,
    "exit": lambda: SystemExit(0),
    "exit without code": SystemExit,
    "generator exit": GeneratorExit,
    "memory": MemoryError,
    "stop iteration": StopIteration,
    "stops iteration": StopsIteration,
    "stop async iteration": StopAsyncIteration,
    "ten megabytes": lambda: ValueError("x" * 10_000_000),
    "wide": lambda: ValueError("\U0001f600" * 50_000),
    "control characters": lambda: ValueError("\x01" * 50_000),
    "surrogates": lambda: ValueError("a\ud800b"),
    "nul": lambda: ValueError("a\0b"),
    "empty": ValueError,
    "bytes": lambda: ValueError(b"\xff", object()),
    "group": lambda: ExceptionGroup("g", [ValueError("\x01" * 5000), KeyError(1)] * 50),
    "group of bases": lambda: BaseExceptionGroup("g", [KeyboardInterrupt(), SystemExit()]),
    "deep group": lambda: deep_group(500),
    "long chain": lambda: chain(5000, "x" * 5000),
    "wide chain": lambda: chain(10, "\x01" * 5000),
    "lease lost": lambda: LeaseLost("progress", "x"),
    "unknown task": lambda: UnknownTask(["x"]),
}


@evil
def circle() -> BaseException:
    one, two = ValueError("one"), ValueError("two")
    one.__cause__, two.__cause__ = two, one
    return one


@evil
def many_notes() -> BaseException:
    error = ValueError("noted")
    for _ in range(1000):
        error.add_note("\x01" * 10_000)
    error.__notes__.append(5)  # type: ignore[arg-type]
    return error


@evil
def wide_frames() -> BaseException:
    """Tracebacks whose every character takes four bytes, in each of its causes."""
    error: BaseException | None = None
    for _ in range(6):
        try:
            _deep(60)
        except ValueError as raised:
            raised.__cause__ = error
            error = raised
    assert error is not None
    return error


@evil
def recursion() -> BaseException:
    def down() -> None:
        down()

    try:
        down()
    except RecursionError as error:
        return error
    raise AssertionError


def _deep(levels: int) -> None:
    name = "\U00010400" * 200
    scope: dict[str, Any] = {}
    lines = "\n".join(f"def {name}{n}():\n    {name}{n + 1}()" for n in range(levels))
    exec(f"{lines}\ndef {name}{levels}():\n    raise ValueError('deep')", scope)
    scope[f"{name}0"]()
