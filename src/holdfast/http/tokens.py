"""What a remote worker is given to keep: who it is, and what it holds. Signed for the key that
asked, so that nobody makes one up, and nobody uses another's."""

from datetime import timedelta
from typing import TypeVar
from uuid import UUID

import msgspec

from holdfast.answers import WorkerRecord
from holdfast.desk.caller import Caller
from holdfast.http.problems import Problem
from holdfast.http.signing import ELSEWHERE, Signer
from holdfast.tasks.lane import Serving
from holdfast.tasks.lifecycle import Facts
from holdfast.tasks.retry import RetryPolicy
from holdfast.tasks.task import Claimed, Lease

__all__ = ["HeldLease", "RemoteWorker", "Tokens"]

T = TypeVar("T")


class RemoteWorker(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One start of a worker that comes over HTTP."""

    id: int
    name: str
    tenant: str | None = None
    host: str = ""
    version: str = ""
    types: tuple[str, ...] = ()
    queues: tuple[str, ...] | None = None
    tags: tuple[str, ...] | None = None
    capabilities: tuple[str, ...] = ()
    slots: int = 1

    def record(self, status: str = "ready") -> WorkerRecord:
        return WorkerRecord(
            id=self.id,
            tenant=self.tenant,
            name=self.name,
            host=self.host,
            version=self.version,
            types=self.types,
            queues=self.queues or (),
            tags=self.tags or (),
            capabilities=self.capabilities,
            slots=self.slots,
            status=status,
        )

    def serving(self, tenant: str | None) -> Serving:
        """A key of one tenant never gets another's tasks."""
        known = (type.partition("@") for type in self.types)
        return Serving(
            queues=None if self.queues is None else frozenset(self.queues),
            tags=None if self.tags is None else frozenset(self.tags),
            capabilities=frozenset(self.capabilities),
            tenants=None if tenant is None else frozenset({tenant}),
            types=frozenset((name, version) for name, _, version in known),
        )


class HeldLease(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A lease, with what its end is judged by."""

    task: UUID
    grant: UUID
    fence: int
    worker: int
    seconds: float
    queue: str
    tries: int
    max_tries: int | None = None
    retry: RetryPolicy | None = None
    parent: UUID | None = None
    alone: bool = False

    @classmethod
    def of(cls, task: Claimed, worker: int, lease: timedelta) -> "HeldLease":
        return cls(
            task=task.lease.task,
            grant=task.lease.grant,
            fence=task.lease.fence,
            worker=worker,
            seconds=lease.total_seconds(),
            queue=task.lane.queue,
            tries=task.tries,
            max_tries=task.max_tries,
            retry=task.retry and msgspec.structs.replace(task.retry, retry_for=()),
            parent=task.parent,
            alone=task.alone,
        )

    @property
    def lease(self) -> Lease:
        return Lease(task=self.task, grant=self.grant, fence=self.fence)

    def facts(self, default_tries: int) -> Facts:
        return Facts(
            tries=self.tries,
            max_tries=self.max_tries or default_tries,
            retry=self.retry,
            alone=self.alone,
        )


class Tokens:
    def __init__(self, signer: Signer) -> None:
        self._signer = signer

    def give(self, value: RemoteWorker | HeldLease, caller: Caller) -> str:
        return self._signer.sign(_purpose(type(value), caller), msgspec.msgpack.encode(value))

    def take(self, text: str, kind: type[T], caller: Caller) -> T:
        data = self._signer.open(_purpose(kind, caller), text)
        if data is None and self._signer.is_foreign(text):
            raise Problem(403, "signed_elsewhere", f"{ELSEWHERE}; until then, register anew")
        if data is None:
            raise Problem(
                403, "not_yours", "this was not given to your key by this server; register anew"
            )
        return msgspec.msgpack.decode(data, type=kind)


def _purpose(kind: type, caller: Caller) -> str:
    return f"{kind.__name__}:{caller.name}:{caller.tenant}"
