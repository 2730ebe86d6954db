"""Who called whom, whatever the shape: bounded, each task once, in circles too."""

from uuid import UUID

import msgspec
import pytest

from holdfast.cli.tree import lines
from holdfast.desk import graph
from holdfast.desk.graph import grown
from holdfast.desk.shapes import TaskView
from holdfast.http.examples import EXAMPLES

EXAMPLE = msgspec.convert(EXAMPLES[TaskView], TaskView)


def task(number: int) -> TaskView:
    return msgspec.structs.replace(EXAMPLE, id=UUID(int=number), type=f"t{number}")


def asking(calls: dict[int, list[int]]):
    async def children(id: UUID) -> list[TaskView]:
        return [task(number) for number in calls.get(id.int, [])]

    return children


async def test_what_two_asked_for_is_one_task_below_both():
    found = await grown(task(1), asking({1: [2, 3], 2: [4], 3: [4]}), 10)
    assert [node.task.id.int for node in found.nodes] == [1, 2, 3, 4]
    edges = [(edge.parent_id.int, edge.child_id.int) for edge in found.edges]
    assert edges == [(1, 2), (1, 3), (2, 4), (3, 4)]
    assert len(list(lines(found))) == 5


async def test_a_circle_is_drawn_once():
    found = await grown(task(1), asking({1: [2], 2: [1]}), 10)
    assert [node.task.id.int for node in found.nodes] == [1, 2]
    told = list(lines(found))
    assert len(told) == 3
    assert told[-1].endswith("(more below)")


async def test_what_lies_deeper_than_asked_for_is_said_to_be_cut():
    chain = {n: [n + 1] for n in range(1, 9)}
    found = await grown(task(1), asking(chain), 3)
    assert [(node.task.id.int, node.cut) for node in found.nodes] == [
        (1, False), (2, False), (3, False), (4, True),
    ]  # fmt: skip


async def test_a_picture_has_its_bounds(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(graph, "_MOST_ASKED", 3)
    monkeypatch.setattr(graph, "MOST", 6)
    found = await grown(task(1), asking({1: [2, 3, 4, 5], 2: [6, 7, 8]}), 10)
    assert len(found.nodes) == 6
    cut = {node.task.id.int for node in found.nodes if node.cut}
    assert {2, 4, 5} <= cut
