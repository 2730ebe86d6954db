"""A durable function with its children as a tree of text."""

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import groupby
from uuid import UUID

import msgspec

from holdfast.desk.desk import Desk
from holdfast.desk.shapes import TaskView

__all__ = ["Node", "grown", "lines"]

_MOST = 1000  # tasks in one picture
_ALIKE = 4  # from so many children of one type on, they are one line
_SIGNS = {
    "done": "✓",
    "failed": "✗",
    "cancelled": "-",
    "running": "▶",
    "waiting": "…",
    "pending": "·",
}


class Node(msgspec.Struct, frozen=True, kw_only=True):
    """A task and what it called. `cut`: it may have children that are not shown."""

    task: TaskView
    children: list["Node"]
    cut: bool = False


async def grown(desk: Desk, id: UUID, depth: int) -> Node:
    left = [_MOST]

    async def grow(task: TaskView, level: int) -> Node:
        if level == depth or left[0] <= 0:
            return Node(task=task, children=[], cut=True)
        left[0] -= 1
        children = (await desk.flow(task.id)).children
        return Node(task=task, children=[await grow(child, level + 1) for child in children])

    return await grow(await desk.task(id), 0)


def lines(root: Node) -> Iterator[str]:
    yield _told(root)
    yield from _below(root, "")


def _below(node: Node, indent: str) -> Iterator[str]:
    shown = list(_folded(node.children))
    for number, (line, child) in enumerate(shown, 1):
        last = number == len(shown)
        yield f"{indent}{'└─ ' if last else '├─ '}{line}"
        if child:
            yield from _below(child, indent + ("   " if last else "│  "))


def _folded(children: Sequence[Node]) -> Iterator[tuple[str, Node | None]]:
    """Neighbours of one type without children of their own, when they are many, in one line."""
    for (type, has_own), alike in groupby(children, key=lambda n: (n.task.type, bool(n.children))):
        group = list(alike)
        if has_own or len(group) < _ALIKE:
            yield from ((_told(node), node) for node in group)
            continue
        counts = Counter(node.task.status for node in group)
        told = " ".join(f"{n} {_SIGNS[status]}" for status, n in counts.most_common())
        yield f"{type} x {len(group)}: {told}", None


def _told(node: Node) -> str:
    task = node.task
    waits = f" ({task.reason})" if task.reason else ""
    error = f": {task.last_error}" if task.status == "failed" and task.last_error else ""
    more = "  (more below)" if node.cut else ""
    return (
        f"{_SIGNS.get(task.status, '?')} {task.type}  {task.id}  {task.status}{waits}{error}{more}"
    )
