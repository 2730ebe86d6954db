"""Who asks, and what they may do."""

from dataclasses import dataclass

__all__ = ["ROLES", "SCOPES", "Caller"]

SCOPES = {
    "tasks:read": "see tasks, their attempts and events",
    "tasks:payload": "see arguments, results, logs and journals",
    "tasks:enqueue": "make tasks",
    "tasks:control": "cancel, retry, signal, replay and discard",
    "fleet:read": "see queues, workers, leases, recoveries and numbers",
    "fleet:control": "pause and resume queues, set limits, drain workers, recover",
    "workers:lease": "claim tasks, renew and settle them",
    "admin": "everything, keys and the audit included",
}
ROLES = {
    "viewer": ("tasks:read", "fleet:read"),
    "operator": (
        "tasks:read",
        "tasks:payload",
        "tasks:enqueue",
        "tasks:control",
        "fleet:read",
        "fleet:control",
    ),
    "worker": ("workers:lease",),
    "admin": ("admin",),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """A person or a key. `tenant`: None where it may see those of all."""

    name: str
    tenant: str | None = None
    scopes: frozenset[str] = frozenset({"admin"})

    def may(self, scope: str) -> bool:
        return scope in self.scopes or "admin" in self.scopes
