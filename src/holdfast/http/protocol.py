"""What remote workers send and hear."""

from typing import Annotated, Any, Literal
from uuid import UUID

import msgspec
from msgspec import Meta

from holdfast.http.fields import Label

__all__ = [
    "Claim",
    "Claimable",
    "ClaimedTask",
    "NewWorker",
    "Registered",
    "Renewal",
    "Renewed",
    "Reported",
    "Settle",
    "SettleError",
    "Settled",
    "SignOff",
]

Token = Annotated[str, Meta(min_length=1, max_length=100_000)]
Names = Annotated[list[Label], Meta(max_length=200)]
Seconds = Annotated[float, Meta(ge=1, le=86_400)]


class NewWorker(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`types`: the functions that it knows, as `name` or `name@version`."""

    worker_id: Label
    types: Annotated[
        list[Annotated[str, Meta(min_length=1, max_length=500)]], Meta(min_length=1, max_length=200)
    ]
    queues: Names | None = None
    tags: Names | None = None
    capabilities: Names = []
    max_concurrent: Annotated[int, Meta(ge=1, le=1000)] = 1
    hostname: Annotated[str, Meta(max_length=200)] = ""
    version: Annotated[str, Meta(max_length=100)] = ""


class Registered(msgspec.Struct, frozen=True, kw_only=True):
    """`worker`: its token, for claims."""

    id: str
    worker_id: str
    worker: str


class SignOff(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    worker: Token


class Claim(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`request_id`: a new random UUID for each claim; the same again after a lost answer brings
    what that one took. `want`: how many, of the `max_concurrent` that it registered with. `active`:
    how many it runs now; it gets no more than its other slots take."""

    worker: Token
    request_id: UUID
    want: Annotated[int, Meta(ge=1, le=1000)] = 1
    active: Annotated[int, Meta(ge=0, le=10_000)] = 0
    lease_seconds: Seconds = 60.0
    wait: Annotated[float, Meta(ge=0, le=30)] = 0.0


class ClaimedTask(msgspec.Struct, frozen=True, kw_only=True):
    """`payload`: `{"args": […], "kwargs": {…}}`. `fence`: only grows; for systems outside.
    `alone`: lost in company more than once; run nothing beside it. `lease`: the token."""

    task_id: UUID
    type: str
    version: str
    queue: str
    tenant_id: str
    user_id: str | None
    priority: int
    attempt: int
    max_tries: int | None
    fence: int
    alone: bool
    payload: msgspec.Raw
    lease: str
    lease_seconds: float


class Claimable(msgspec.Struct, frozen=True, kw_only=True):
    """`drain`: claim no more; finish, sign off and leave."""

    data: list[ClaimedTask]
    drain: bool


class Renewal(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`lease_seconds`: as claimed where it is left out."""

    lease_seconds: Seconds | None = None


class Renewed(msgspec.Struct, frozen=True, kw_only=True):
    """`cancel_requested`: stop, and settle it as cancelled."""

    cancel_requested: bool


class Reported(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`save`: survives the attempt."""

    percent: Annotated[float, Meta(ge=0, le=100)]
    message: Annotated[str, Meta(max_length=1000)] | None = None
    save: Any = None


class SettleError(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Stored without the secrets among the task's arguments, and then cut to what fits."""

    type: Annotated[str, Meta(min_length=1, max_length=1000)] = "Error"
    message: Annotated[str, Meta(max_length=100_000)] = ""
    traceback: Annotated[str, Meta(max_length=200_000)] | None = None


class Settle(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How the attempt ended. `result`: of done; `error`, `retryable`: of failed; `delay`: of
    snoozed."""

    outcome: Literal["done", "failed", "cancelled", "snoozed", "handed_back"]
    result: Any = None
    error: SettleError | None = None
    retryable: bool = True
    delay: float | str = 1.0


class Settled(msgspec.Struct, frozen=True, kw_only=True):
    """`ended`: what became of the attempt: a failed one may be tried again (`retry`)."""

    ended: str
