"""Two connections, every pair of verbs, every order of their steps; then time passes, a healthy
worker works off what is left, and nothing may be lost, doubled, stuck or miscounted."""

from collections.abc import AsyncIterator, Iterator
from itertools import combinations_with_replacement, pairwise
from typing import Any
from uuid import UUID

import asyncpg
import pytest
import pytest_asyncio

from holdfast.answers import ClaimAnswer
from holdfast.tasks.lifecycle import Verdict
from holdfast.tasks.limits import Limit
from holdfast.tasks.task import Claimed
from tests.permutations.cast import Cast, claims
from tests.permutations.scenes import SCENES, Scene
from tests.permutations.stage import RolledBack, Stage, stage
from tests.permutations.world import World
from tests.servers import AnyPostgres, fresh_database

pytestmark = pytest.mark.asyncio(loop_scope="module")

LIFTS = {"limit", "no limit"}  # a claim that is under way may pass a limit that is set just now
LOOKS_FIRST = {
    "recover",
    "enqueue",
    "enqueue anew",
    "edit",
    "edit late",
    "edit blocked",
    "edit due",
    "edit other",
}  # a read of its own, before it writes
REVIVES = {"replay"}
SETTLES = ("settle", "hand back", "put down", "child", "one", "two")
FORGETS = {"discard", "cleanup"}


class House:
    """One database with its scenes, for all pairs."""

    def __init__(self, world: World, stage: Stage) -> None:
        self.world, self.stage = world, stage
        self.casts: dict[str, Cast] = {}

    async def scene(self, scene: Scene) -> Cast:
        await self.world.clear()
        if scene.name not in self.casts:
            cast = Cast(self.world)
            await scene.set_up(cast)
            await self.world.keep(scene.name)
            self.casts[scene.name] = cast
        return self.casts[scene.name]


@pytest.fixture(scope="module")
def url(postgres_current: AnyPostgres) -> Iterator[str]:
    with fresh_database(postgres_current) as url:
        yield url


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def house(url: str) -> AsyncIterator[House]:
    conn = await asyncpg.connect(url)
    world = World(url, conn)
    await world.open()
    async with stage(url, world.driver) as both:
        yield House(world, both)
    await world.close()
    await conn.close()


def pairs() -> Iterator[Any]:
    for scene in SCENES:
        for one, other in combinations_with_replacement(scene.verbs, 2):
            yield pytest.param(scene, one, other, id=f"{scene.name}: {one}, {other}")


@pytest.mark.parametrize(("scene", "one", "other"), list(pairs()))
async def test_no_order_of_two_verbs_breaks_a_promise(
    house: House, scene: Scene, one: str, other: str
) -> None:
    """In short: orders in which the two overlap."""
    house.stage.begins_apart = False
    await play_all(house, scene, one, other, first=["ab", "ba"], switches=2, short=3)
    if scene.name != "crowd":
        await cut_all(house, scene, one, other)


@pytest.mark.long
@pytest.mark.parametrize(("scene", "one", "other"), list(pairs()))
async def test_nor_does_any_order_of_begin_statement_and_commit(
    house: House, scene: Scene, one: str, other: str
) -> None:
    house.stage.begins_apart = True
    await play_all(house, scene, one, other, first=["", "b"], switches=2, short=5)
    await cut_all(house, scene, one, other)


async def test_a_claim_that_comes_while_another_lets_keys_in_says_so(house: House) -> None:
    """Empty, though work waits: it must ask again at once, not rest."""
    await house.world.clear()
    cast = Cast(house.world)
    await house.world.store.limit("type", "keyed", Limit(max_per_key=5))
    for name in ("one", "two", "three"):
        await cast.add(name, "keyed", concurrency_key="k")
        if name == "one":
            await cast.hold("one")
    house.stage.begins_apart = False
    one, all = claims(want=1), claims()
    _, _, (first, second) = await house.stage.perform(
        [lambda store: one(store, cast), lambda store: all(store, cast)], "abab"
    )
    assert [len(first.tasks), len(second.tasks)] == [1, 0]
    assert second.contended is not None


async def play_all(
    house: House, scene: Scene, one: str, other: str, *, first: list[str], switches: int, short: int
) -> None:
    """All orders that begin so, with at most so many switches between the actors, or `short` of
    them where the verbs are short."""
    cast = await house.scene(scene)
    todo, seen = first[:1] if one == other else first, set()
    while todo:
        taken, others, _ = await play_one(house, scene, cast, (one, other), todo.pop())
        if taken not in seen:
            seen.add(taken)
            most = short if len(taken) <= 5 else switches
            todo += [order for order in others if changes(order) <= most]


async def cut_all(house: House, scene: Scene, one: str, other: str) -> None:
    """Each commit of each actor is cut in turn, with all of the other's steps before the cut."""
    cast = await house.scene(scene)
    begin = 2 if house.stage.begins_apart else 1
    for actor, (verb, mine, theirs) in enumerate(((one, "a", "b"), (other, "b", "a"))):
        for commit in range(3):
            steps = (begin + 1) * commit + begin + (verb in LOOKS_FIRST)
            order = mine * steps + theirs * 30
            _, _, answers = await play_one(house, scene, cast, (one, other), order, (actor, commit))
            if not isinstance(answers[actor], RolledBack):
                break


async def play_one(
    house: House,
    scene: Scene,
    cast: Cast,
    verbs: tuple[str, str],
    order: str,
    cut: tuple[int, int] | None = None,
) -> tuple[str, list[str], list[Any]]:
    world, turned = house.world, cast.reversed()
    await world.put_back(scene.name)
    one, other = (scene.verbs[verb] for verb in verbs)
    taken, others, answers = await house.stage.perform(
        [lambda store: one(store, cast), lambda store: other(store, turned)], order, cut
    )
    wrong = await world.wrongs(limits=LIFTS.isdisjoint(verbs))
    claims = [
        task for answer in answers if isinstance(answer, ClaimAnswer) for task in answer.tasks
    ]
    claims += await world.run_out()
    wrong += await world.wrongs_at_the_end()
    wrong += fences_that_did_not_grow(cast, claims)
    if REVIVES.isdisjoint(verbs):
        wrong += starts_after_a_cancel(answers, claims)
    if FORGETS.isdisjoint(verbs):
        endings = await world.endings()
        wrong += [f"{id} is lost" for id in accepted(cast, answers) - endings.keys()]
        if sum(verb.startswith(SETTLES) for verb in verbs) == 1:
            wrong += settles_that_did_not_last(answers, endings)
    assert not wrong, f"{scene.name}: {verbs}, order {taken!r}, cut {cut}: {wrong}; {answers}"
    return taken, others, answers


def changes(order: str) -> int:
    return sum(x != y for x, y in pairwise(order))


def accepted(cast: Cast, answers: list[Any]) -> set[UUID]:
    enqueued = [id for answer in answers if isinstance(answer, list) for id in answer]
    return {*cast.ids.values(), *(id for id in enqueued if isinstance(id, UUID))}


def fences_that_did_not_grow(cast: Cast, claims: list[Claimed]) -> list[str]:
    last = {lease.task: lease.fence for lease in cast.leases.values()}
    wrong = []
    for task in sorted(claims, key=lambda task: task.lease.fence):
        id, fence = task.lease.task, task.lease.fence
        if fence <= last.get(id, 0):
            wrong.append(f"{id} was granted with fence {fence} after {last[id]}")
        last[id] = fence
    return wrong


def starts_after_a_cancel(answers: list[Any], claims: list[Claimed]) -> list[str]:
    cancelled = {
        id
        for answer in answers
        if isinstance(answer, dict)
        for id, word in answer.items()
        if word == "cancelled"
    }
    return [
        f"{t.lease.task} was cancelled and started" for t in claims if t.lease.task in cancelled
    ]


def settles_that_did_not_last(
    answers: list[Any], endings: dict[UUID, tuple[UUID | None, str | None]]
) -> list[str]:
    """Accepted: it is the outcome. Refused: nothing of it is."""
    wrong = []
    for asked, refused in (answer for answer in answers if isinstance(answer, tuple)):
        for lease, settlement in asked.items():
            written = endings[lease.task] == (lease.grant, "holder")
            if lease.task in refused and written:
                wrong.append(f"{lease.task} was refused, and written")
            if lease.task not in refused and settlement.verdict is Verdict.DONE and not written:
                wrong.append(f"{lease.task} was accepted, and not written")
    return wrong
