"""Several observers as one. One that raises is heard of in the log, and harms nobody."""

import logging
from collections.abc import Iterable, Sequence
from typing import Any
from uuid import UUID

from holdfast.answers import Recovered
from holdfast.observer import DeadLetter, Ended, Observer, Stuck
from holdfast.tasks.task import Claimed, Draft

__all__ = ["Many"]

logger = logging.getLogger("holdfast.observers")


class Many(Observer):
    """Tells each of them."""

    def __init__(self, observers: Iterable[Observer]) -> None:
        self._observers = tuple(observers)
        self._complained: set[str] = set()

    def enqueued(self, drafts: Sequence[Draft]) -> None:
        self._tell("enqueued", drafts)

    def claimed(self, tasks: Sequence[Claimed]) -> None:
        self._tell("claimed", tasks)

    def settled(self, ended: Sequence[Ended], refused: frozenset[UUID]) -> None:
        self._tell("settled", ended, refused)

    def renewed(self, kept: Sequence[UUID], lost: frozenset[UUID]) -> None:
        self._tell("renewed", kept, lost)

    def renewal_failed(self, held: Sequence[UUID]) -> None:
        self._tell("renewal_failed", held)

    def recovered(self, tasks: Sequence[Recovered]) -> None:
        self._tell("recovered", tasks)

    def dead_lettered(self, letters: Sequence[DeadLetter]) -> None:
        self._tell("dead_lettered", letters)

    def rested(self, seconds: float) -> None:
        self._tell("rested", seconds)

    def lagged(self, seconds: float) -> None:
        self._tell("lagged", seconds)

    def stuck(self, tasks: Sequence[Stuck]) -> None:
        self._tell("stuck", tasks)

    def _tell(self, what: str, *news: Any) -> None:
        for observer in self._observers:
            try:
                getattr(observer, what)(*news)
            except Exception:
                name = f"{type(observer).__name__}.{what}"
                if name not in self._complained:
                    self._complained.add(name)
                    logger.exception("%s failed; further failures of it are not logged", name)
