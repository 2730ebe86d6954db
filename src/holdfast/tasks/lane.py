"""What waits alike, and who serves it."""

import msgspec

__all__ = ["Lane", "Serving"]


class Lane(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that a worker looks at when it chooses; tasks with equal parts share a lane."""

    queue: str
    type: str
    version: str = ""
    tags: tuple[str, ...] = ()
    requires: tuple[str, ...] = ()
    tenant: str = "default"


class Serving(msgspec.Struct, frozen=True, kw_only=True):
    """Which lanes a worker serves. None: no filter.

    A tagged worker takes tasks that share a tag with it, and untagged ones. Requirements go the
    other way: a worker must offer all that a task requires.
    """

    queues: frozenset[str] | None = None
    tags: frozenset[str] | None = None
    capabilities: frozenset[str] = frozenset()
    tenants: frozenset[str] | None = None
    types: frozenset[tuple[str, str]] | None = None  # (type, version) that the worker knows

    def serves(self, lane: Lane) -> bool:
        return (
            (self.queues is None or lane.queue in self.queues)
            and (self.tags is None or not lane.tags or not self.tags.isdisjoint(lane.tags))
            and self.capabilities.issuperset(lane.requires)
            and (self.tenants is None or lane.tenant in self.tenants)
            and (self.types is None or (lane.type, lane.version) in self.types)
        )
