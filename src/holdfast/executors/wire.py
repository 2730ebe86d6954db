"""What a worker and its child processes say to each other: frames of msgpack, length first."""

import msgspec

from holdfast.executors.outcomes import Raised
from holdfast.executors.places import Place
from holdfast.tasks.payload import MAX_SIZE
from holdfast.tasks.task import Claimed

__all__ = [
    "HEAD",
    "LARGEST",
    "Answer",
    "Cancel",
    "FromChild",
    "Logged",
    "Needs",
    "Progress",
    "Refusal",
    "Returned",
    "Run",
    "Saved",
    "Started",
    "Stop",
    "Surroundings",
    "Threw",
    "ToChild",
    "frame",
    "from_child",
    "to_child",
]

HEAD = 4
LARGEST = 2 * MAX_SIZE  # a payload or result, and what goes with it


class Surroundings(msgspec.Struct, frozen=True, kw_only=True):
    """What the parent looks like from inside, so that imports and files are found alike."""

    path: list[bytes]  # of files, which need not be names in any encoding
    argv: list[bytes]
    cwd: bytes | None


class Run(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Call this function; its answers carry `number`."""

    number: int
    place: Place
    claimed: Claimed
    worker_id: str
    max_tries: int
    cancel_requested: bool
    surroundings: Surroundings
    cpu_limit: float | None = None
    levels: dict[str, int] = {}  # of loggers
    hidden: tuple[str, ...] = ()  # texts among the arguments that nobody should see
    may_leave: bool = False  # where it asks for what only the worker has: it runs there instead


class Cancel(msgspec.Struct, frozen=True, tag=True):
    number: int


class Refusal(msgspec.Struct, frozen=True):
    """An error of ours, by the name of its class."""

    type: str
    message: str


class Answer(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    ask: int
    saved: bytes | None = None
    refusal: Refusal | None = None


class Stop(msgspec.Struct, frozen=True, tag=True):
    """End in good order: nothing more will come."""


class Started(msgspec.Struct, frozen=True, tag=True):
    number: int


class Needs(msgspec.Struct, frozen=True, tag=True):
    """The function asks for what only its worker has, and waits to be ended."""

    number: int


class Returned(msgspec.Struct, frozen=True, tag=True):
    number: int
    result: bytes


class Threw(msgspec.Struct, frozen=True, tag=True):
    """`worn`: do not use this process again."""

    number: int
    raised: Raised
    worn: bool = False


class Logged(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """A log record, as text and numbers."""

    number: int
    name: str
    level: int
    message: str
    created: float
    path: str
    line: int
    function: str
    pid: int
    trace: str | None
    extra: str = "{}"  # JSON


class Progress(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    number: int
    ask: int
    percent: float
    message: str | None
    saved: bytes | None


class Saved(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    number: int
    ask: int


ToChild = Run | Cancel | Answer | Stop
FromChild = Started | Needs | Returned | Threw | Progress | Saved | Logged

_encoder = msgspec.msgpack.Encoder()
_to_child: msgspec.msgpack.Decoder[ToChild] = msgspec.msgpack.Decoder(ToChild)
_from_child: msgspec.msgpack.Decoder[FromChild] = msgspec.msgpack.Decoder(FromChild)


def to_child(data: bytes) -> ToChild:
    return _to_child.decode(data)


def from_child(data: bytes) -> FromChild:
    return _from_child.decode(data)


def frame(message: ToChild | FromChild) -> bytes:
    data = _encoder.encode(message)
    return len(data).to_bytes(HEAD) + data
