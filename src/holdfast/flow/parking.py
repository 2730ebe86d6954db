"""How a run is parked whose code does not ask for what is recorded."""

from collections.abc import Sequence

from holdfast.errors import Parked
from holdfast.flow.entries import Key
from holdfast.tasks.lifecycle import NEVER, Waiting

__all__ = ["disagreement", "parked"]

_MOST = 10  # lines of each kind


def disagreement(recorded: Sequence[Key], asked: Sequence[Key]) -> Parked:
    lines = ["the code does not ask for what is recorded of this run"]
    lines += [f"- recorded, not asked: {_told(key, asked)}" for key in recorded[:_MOST]]
    lines += [f"+ asked, not recorded: {_told(key, recorded)}" for key in asked[:_MOST]]
    lines.append("mend the code (or use version= or patched), then retry the task; or cancel it")
    return Parked("\n".join(lines))


def parked(disagreed: Parked) -> Waiting:
    return Waiting(wakes=NEVER, reason=f"parked: {disagreed}")


def _told(key: Key, others: Sequence[Key]) -> str:
    """Of arguments no more than a digest is recorded: they may be large, or secret."""
    alike = [k for k in others if (k.branch, k.name) == (key.branch, key.name)]
    if any(other.digest != key.digest for other in alike):
        return f"{key}, with other arguments ({key.digest or 'none'})"
    return str(key)
