"""Who goes first among idle workers. Pure."""

from collections.abc import Iterable

from holdfast.answers import WorkerRecord

__all__ = ["steps_below"]


def steps_below(mine: WorkerRecord, workers: Iterable[WorkerRecord]) -> int:
    """How many higher priorities there are among the workers that are well and may take the same
    tasks: so many graces to wait before taking what is still there."""
    return len(
        {
            other.priority
            for other in workers
            if other.priority > mine.priority
            and other.status == "ready"
            and other.tenant in (None, mine.tenant)
            and _overlap(mine.queues, other.queues)
            and _overlap(mine.tags, other.tags)
        }
    )


def _overlap(some: tuple[str, ...], others: tuple[str, ...]) -> bool:
    """No filter takes everything."""
    return not some or not others or not set(some).isdisjoint(others)
