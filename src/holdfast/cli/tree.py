"""A durable function with its children as a tree of text."""

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import groupby
from uuid import UUID

import msgspec

from holdfast.desk.graph import FlowGraph
from holdfast.desk.shapes import TaskView

__all__ = ["lines"]

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


def _tree(graph: FlowGraph) -> Node:
    """What several asked for is drawn below each of them; in a circle, once."""
    nodes = {node.task.id: node for node in graph.nodes}
    below: dict[UUID, list[UUID]] = {}
    for edge in graph.edges:
        below.setdefault(edge.parent_id, []).append(edge.child_id)

    def grow(id: UUID, above: frozenset[UUID]) -> Node:
        node, path = nodes[id], above | {id}
        children = [] if id in above else [grow(child, path) for child in below.get(id, ())]
        return Node(task=node.task, children=children, cut=node.cut or id in above)

    return grow(graph.nodes[0].task.id, frozenset())


def lines(graph: FlowGraph) -> Iterator[str]:
    root = _tree(graph)
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
