"""What may still be changed of a task that has not begun. Pure: no await, no SQL, no clock."""

from datetime import datetime, timedelta
from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from holdfast.errors import InvalidInput
from holdfast.tasks.durations import duration
from holdfast.tasks.lane import Lane
from holdfast.tasks.names import (
    check_delay,
    check_expires,
    check_labels,
    check_name,
    check_priority,
    check_run_at,
    check_tries,
)

__all__ = ["Edit", "edit_of"]


class Edit(msgspec.Struct, frozen=True, kw_only=True):
    """Checked when it is born. What is not set stays as it is.

    `delay`: from now on, zero for at once; or `run_at`. `expires`: from now on, None for never.
    `max_tries`: None for the default of whoever runs it. A task that gets another queue, priority,
    time, tags or requirements stands behind those that wait there already.
    """

    priority: int | UnsetType = UNSET
    queue: str | UnsetType = UNSET
    tags: tuple[str, ...] | UnsetType = UNSET
    requires: tuple[str, ...] | UnsetType = UNSET
    delay: timedelta | UnsetType = UNSET
    run_at: datetime | UnsetType = UNSET
    expires: timedelta | UnsetType | None = UNSET
    max_tries: int | UnsetType | None = UNSET

    def __post_init__(self) -> None:
        if all(getattr(self, name) is UNSET for name in self.__struct_fields__):
            raise InvalidInput(f"say what to change: {', '.join(self.__struct_fields__)}")
        if self.priority is not UNSET:
            check_priority(self.priority)
        if self.queue is not UNSET:
            check_name("queue", self.queue)
        for what, labels in (("tag", self.tags), ("requirement", self.requires)):
            if labels is not UNSET and check_labels(what, labels) != labels:
                raise InvalidInput(f"{what}s must be sorted and each once, got {labels}")
        if self.delay is not UNSET:
            check_delay("delay", self.delay)
        if self.run_at is not UNSET:
            check_run_at(self.run_at, None if self.delay is UNSET else self.delay)
        if self.expires is not UNSET and self.expires is not None:
            check_delay("expires", self.expires)
        if self.max_tries is not UNSET and self.max_tries is not None:
            check_tries(self.max_tries)

    def lane(self, old: Lane) -> Lane:
        """Where a task of that lane waits from now on."""
        parts = {"queue": self.queue, "tags": self.tags, "requires": self.requires}
        given = {name: part for name, part in parts.items() if part is not UNSET}
        return msgspec.structs.replace(old, **given) if given else old

    @property
    def moves_time(self) -> bool:
        return self.delay is not UNSET or self.run_at is not UNSET


def edit_of(**wishes: Any) -> Edit:
    """As people write it: spans of time as text or seconds, labels in any order."""
    given = {name: value for name, value in wishes.items() if value is not UNSET}
    for name, what in (("tags", "tag"), ("requires", "requirement")):
        if name in given:
            given[name] = check_labels(what, given[name])
    for name in ("delay", "expires"):
        if given.get(name) is not None:
            given[name] = duration(name, given[name])
    check_expires(given.get("expires"), given.get("delay"))
    return Edit(**given)
