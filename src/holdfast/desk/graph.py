"""A durable function with all that it called, and what that called: as nodes and edges."""

from collections.abc import Awaitable, Callable, Sequence
from uuid import UUID

from holdfast.desk.shapes import Shape, TaskView

__all__ = ["DEEPEST", "DEPTH", "MOST", "FlowEdge", "FlowGraph", "FlowNode", "grown"]

DEPTH, DEEPEST = 10, 50
_MOST_ASKED = 1000  # functions whose children are looked up
MOST = 10_000  # nodes

Children = Callable[[UUID], Awaitable[Sequence[TaskView]]]


class FlowNode(Shape, frozen=True, kw_only=True):
    """`cut`: it may have children that are not shown."""

    task: TaskView
    cut: bool = False


class FlowEdge(Shape, frozen=True, kw_only=True):
    """One asked for the other. By an idempotency key several may have asked for the same."""

    parent_id: UUID
    child_id: UUID


class FlowGraph(Shape, frozen=True, kw_only=True):
    """The root comes first, then what is nearer to it; edges in the order of the asks."""

    nodes: list[FlowNode]
    edges: list[FlowEdge]


async def grown(root: TaskView, children: Children, depth: int) -> FlowGraph:
    """`children` answers what one function asked for, in order."""
    tasks, cut = {root.id: root}, set[UUID]()
    edges: list[FlowEdge] = []
    level, asked = [root.id], 0
    for _ in range(depth):
        below: list[UUID] = []
        for id in level:
            if asked >= _MOST_ASKED:
                cut.add(id)
                continue
            asked += 1
            for child in await children(id):
                if child.id not in tasks and len(tasks) >= MOST:
                    cut.add(id)
                    break
                edges.append(FlowEdge(parent_id=id, child_id=child.id))
                if child.id not in tasks:
                    tasks[child.id] = child
                    below.append(child.id)
        level = below
    cut.update(level)
    nodes = [FlowNode(task=task, cut=id in cut) for id, task in tasks.items()]
    return FlowGraph(nodes=nodes, edges=edges)
