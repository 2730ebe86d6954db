"""Ends that no worker wrote, and the wakes that every end sends."""

from collections.abc import Sequence

from holdfast.stores.sqlite.session import Session

__all__ = ["EXPIRED", "end", "wake"]

EXPIRED = ("Expired", "not done before it expired")


def end(
    s: Session,
    ended: Sequence[tuple[bytes, int, int]],
    state: str,
    error_type: str | None,
    error: str | None,
) -> None:
    """Write the outcome of tasks (id, fence, tries) that nobody held."""
    if not ended:
        return
    s.each(
        "outcome.add",
        id=[e[0] for e in ended],
        fence=[e[1] for e in ended],
        tries=[e[2] for e in ended],
        seq=s.numbers("event", len(ended)),
        state=state,
        by="operator",
        error_type=error_type,
        error=error,
        grant=None,
        worker=None,
        started_at=None,
        result=None,
        detail=None,
    )


def wake(s: Session, ids: Sequence[bytes], *, urgent: bool) -> None:
    s.each("wake.add", id=list(ids), urgent=urgent)
