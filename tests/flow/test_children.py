"""`await other(...)`: a child task, its result, its failure."""

import asyncio
from typing import Any

import pytest

from holdfast import Holdfast, RetryPolicy, TaskCancelled, TaskFailed, current
from holdfast.flow import arrivals
from holdfast.observers import log
from holdfast.tasks.task import TaskStatus
from tests.flow.acts import ONCE, SOON, number_of, status, waits
from tests.work.bench import Bench, until


async def test_a_call_inside_a_durable_function_is_a_task_of_its_own(bench: Bench) -> None:
    parents = []

    @bench.app.durable(name="double", queue="other")
    async def double(i: int) -> int:
        parents.append((current().parent, current().queue))
        return 2 * i

    @bench.app.durable(name="twice")
    async def twice(i: int) -> int:
        return await double(await double(i))

    async with bench.worker():
        task = await bench.app.dispatch(twice, 3)
        assert await task.result(timeout=60) == 12
    assert parents == [(task.id, "other")] * 2
    assert number_of(bench, "double") == 2


async def test_a_result_has_the_type_of_the_annotation(bench: Bench) -> None:
    @bench.app.durable(name="pair")
    async def pair() -> tuple[int, bytes]:
        return 1, b"\x00\xff"

    @bench.app.durable(name="ask")
    async def ask() -> str:
        return repr(await pair())

    async with bench.worker():
        task = await bench.app.dispatch(ask)
        assert await task.result(timeout=60) == repr((1, b"\x00\xff"))


async def test_tries_do_not_multiply(bench: Bench) -> None:
    ran = {"child": 0, "parent": 0}

    @bench.app.durable(name="fail", retry_policy=SOON)
    async def fail() -> None:
        ran["child"] += 1
        raise ValueError("no way")

    @bench.app.durable(name="parent", retry_policy=SOON)
    async def parent() -> None:
        ran["parent"] += 1
        await fail()

    async with bench.worker():
        task = await bench.app.dispatch(parent)
        with pytest.raises(TaskFailed, match="no way") as failed:
            await task.result(timeout=60)
    assert failed.value.type.endswith("TaskFailed")
    assert ran["child"] == 3
    assert "retry" not in await bench.ends(task)


async def test_tries_do_not_multiply_in_a_task_group_either(bench: Bench) -> None:
    ran = {"child": 0, "parent": 0}

    @bench.app.durable(name="fail", retry_policy=SOON)
    async def fail(i: int) -> None:
        ran["child"] += 1
        raise ValueError("no way")

    @bench.app.durable(name="parent", retry_policy=SOON)
    async def parent() -> None:
        ran["parent"] += 1
        async with asyncio.TaskGroup() as group:
            group.create_task(fail(1))

    async with bench.worker():
        task = await bench.app.dispatch(parent)
        with pytest.raises(TaskFailed):
            await task.result(timeout=60)
    assert ran == {"child": 3, "parent": 1}


async def test_a_failure_that_is_caught_is_data(bench: Bench) -> None:
    @bench.app.durable(name="fail", retry_policy=ONCE)
    async def fail(i: int) -> None:
        raise KeyError(f"number {i}")

    @bench.app.durable(name="careful")
    async def careful() -> list[str]:
        told = []
        for i in range(3):
            try:
                await fail(i)
            except TaskFailed as failed:
                told.append(f"{failed.type} {failed.message}")
        return told

    async with bench.worker():
        task = await bench.app.dispatch(careful)
        told = await task.result(timeout=60)
    assert [one.split()[0] for one in told] == ["KeyError"] * 3
    assert "number 2" in told[2]
    assert number_of(bench, "fail") == 3


async def test_an_error_after_a_child_runs_the_function_again_but_not_the_child(
    bench: Bench,
) -> None:
    ran = {"child": 0, "parent": 0}

    @bench.app.durable(name="child")
    async def child() -> int:
        ran["child"] += 1
        return ran["child"]

    @bench.app.durable(name="parent", retry_policy=SOON)
    async def parent() -> int:
        ran["parent"] += 1
        found = await child()
        if ran["parent"] < 3:
            raise ValueError("not yet")
        return found

    async with bench.worker():
        task = await bench.app.dispatch(parent)
        assert await task.result(timeout=60) == 1
    assert ran == {"child": 1, "parent": 3}


async def test_five_functions_deep_in_one_slot(bench: Bench) -> None:
    @bench.app.durable(name="deep")
    async def deep(levels: int) -> int:
        return 1 if levels == 1 else 1 + await deep(levels - 1)

    async with bench.worker(max_concurrency=1):
        task = await bench.app.dispatch(deep, 5)
        assert await task.result(timeout=60) == 5
    assert number_of(bench, "deep") == 5


async def test_many_functions_with_children_share_one_slot(bench: Bench) -> None:
    running: list[int] = []
    most = []

    @bench.app.durable(name="leaf")
    async def leaf(i: int) -> int:
        running.append(i)
        most.append(len(running))
        await asyncio.sleep(0)
        running.remove(i)
        return i

    @bench.app.durable(name="root")
    async def root(i: int) -> int:
        return sum(await asyncio.gather(*(leaf(10 * i + n) for n in range(3))))

    async with bench.worker(max_concurrency=1):
        tasks = await bench.app.dispatch_many([root.call(i) for i in range(10)])
        found = [await task.result(timeout=60) for task in tasks]
    assert found == [30 * i + 3 for i in range(10)]
    assert max(most) == 1


async def test_gather_says_how_calls_are_given(bench: Bench) -> None:
    @bench.app.durable(name="leaf")
    async def leaf(i: int) -> int:
        return i

    @bench.app.durable(name="root", max_tries=1)
    async def root() -> list[int]:
        return await Holdfast.gather([leaf.call(1), leaf.call(2)])  # type: ignore[call-overload,no-any-return]

    async with bench.worker():
        with pytest.raises(TaskFailed, match=r"as gather\(f\(1\), f\(2\)\).*; got list"):
            await (await bench.app.dispatch(root)).result(timeout=60)


async def test_a_function_that_is_put_down_goes_on_at_another_worker(
    bench: Bench, no_linger: None
) -> None:
    steps: list[str] = []
    go = asyncio.Event()
    apps = [bench.app, bench.new_app()]
    ran_by = []

    def register(app: Holdfast) -> None:
        @app.durable(name="slow", queue="slow")
        async def slow() -> int:
            await go.wait()
            return 7

        @app.durable(name="parent")
        async def parent() -> int:
            ran_by.append(current().worker_id)
            await Holdfast.step("first", steps.append, "first")
            found = await slow()
            await Holdfast.step("last", steps.append, "last")
            return found

        parents.append(parent)

    parents: list[Any] = []
    for app in apps:
        register(app)
    async with bench.worker(queues=["slow"]):
        async with bench.worker(queues=["default"], worker_id="one"):
            task = await bench.app.dispatch(parents[0])
            await waits(bench, task)
        async with bench.worker(apps[1], queues=["default"], worker_id="two"):
            go.set()
            assert await task.result(timeout=60) == 7
    assert steps == ["first", "last"]
    assert (ran_by[0], ran_by[-1]) == ("one", "two")
    assert "waiting" in await bench.ends(task)


async def test_waiting_costs_no_try(bench: Bench, no_linger: None) -> None:
    @bench.app.durable(name="leaf")
    async def leaf(i: int) -> int:
        return i

    @bench.app.durable(name="root", retry_policy=ONCE)
    async def root() -> list[int]:
        return [await leaf(i) for i in range(5)]

    async with bench.worker():
        task = await bench.app.dispatch(root)
        assert await task.result(timeout=60) == [0, 1, 2, 3, 4]
    assert (await bench.ends(task)).count("waiting") >= 1
    assert number_of(bench, "leaf") == 5


async def test_a_cancelled_child_is_an_error_of_its_parent(bench: Bench) -> None:
    held = asyncio.Event()

    @bench.app.durable(name="child")
    async def child() -> None:
        held.set()
        await asyncio.Event().wait()

    @bench.app.durable(name="parent")
    async def parent() -> str:
        try:
            await child()
        except TaskCancelled:
            return "it was cancelled"
        return "no"

    async with bench.worker():
        task = await bench.app.dispatch(parent)
        await held.wait()
        (below,) = (await bench.app.list_tasks(type="child")).tasks
        await bench.app.cancel(below.id)
        assert await task.result(timeout=60) == "it was cancelled"


@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_key_that_another_task_holds_leads_to_its_result(
    bench: Bench, no_linger: None, when: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran = []
    go = asyncio.Event()
    monkeypatch.setattr(arrivals, "_STRANGER", 0.1)

    @bench.app.durable(name="charge", idempotent=True, queue="charges")
    async def charge(order: int) -> int:
        ran.append(order)
        await go.wait()
        return 100 * order

    @bench.app.durable(name="parent")
    async def parent() -> list[int]:
        return [await charge(7), await charge(8)]

    other = await bench.app.dispatch(charge, 7)
    async with bench.worker(queues=["charges"]):
        if when == "before":
            go.set()
            await other.result(timeout=60)
        async with bench.worker(queues=["default"]):
            task = await bench.app.dispatch(parent)
            if when == "after":
                await waits(bench, task)
            go.set()
            assert await task.result(timeout=60) == [700, 800]
    assert sorted(ran) == [7, 8]
    assert number_of(bench, "charge") == 2


async def test_wrong_arguments_are_refused_in_the_function_that_calls(bench: Bench) -> None:
    @bench.app.durable(name="child")
    async def child(i: int) -> int:
        return i

    @bench.app.durable(name="parent")
    async def parent() -> str:
        try:
            await child("no number")  # type: ignore[arg-type]
        except ValueError:
            return "refused"
        return "accepted"

    async with bench.worker():
        task = await bench.app.dispatch(parent)
        assert await task.result(timeout=60) == "refused"
    assert number_of(bench, "child") == 0


async def test_children_belong_to_the_tenant_of_their_parent(bench: Bench) -> None:
    @bench.app.durable(name="child")
    async def child() -> str:
        return current().tenant

    @bench.app.durable(name="parent")
    async def parent() -> str:
        return await child()

    async with bench.worker():
        task = await bench.app.dispatch(parent.options(tenant="acme"))
        assert await task.result(timeout=60) == "acme"


async def test_children_run_for_the_user_of_their_parent_unless_told_otherwise(
    bench: Bench,
) -> None:
    @bench.app.durable(name="leaf")
    async def leaf() -> str | None:
        return current().user_id

    @bench.app.durable(name="child")
    async def child() -> list[str | None]:
        return [current().user_id, await leaf()]

    @bench.app.durable(name="parent")
    async def parent() -> list[Any]:
        each = [await child(), await child.options(user_id="bob")()]
        return [*each, await Holdfast.gather(leaf(), leaf.options(user_id="cy")())]

    async with bench.worker():
        for user in ("ann", None):
            task = await bench.app.dispatch(parent.options(user_id=user))
            found = await task.result(timeout=60)
            assert found == [[user, user], ["bob", "bob"], [user, "cy"]]
    (below,) = (await bench.app.list_tasks(user_id="cy", limit=1)).tasks
    assert below.type == "leaf"


async def test_a_function_keeps_its_user_in_every_try_and_every_run(bench: Bench) -> None:
    seen = []

    @bench.app.durable(name="again", retry_policy=SOON)
    async def again(run: int) -> str | None:
        seen.append((run, current().attempt, current().user_id))
        if len(seen) == 1:
            raise ValueError("once more")
        if run == 0:
            await Holdfast.continue_as_new(1)
        return current().user_id

    async with bench.worker():
        task = await bench.app.dispatch(again.options(user_id="ann"), 0)
        assert await task.result(timeout=60) == "ann"
    assert seen == [(0, 1, "ann"), (0, 2, "ann"), (1, 1, "ann")]


async def test_a_durable_function_called_in_a_step_runs_there_and_then(bench: Bench) -> None:
    @bench.app.durable(name="child")
    async def child(i: int) -> int:
        return i + 1

    async def step() -> int:
        return await child(1)

    @bench.app.durable(name="parent")
    async def parent() -> Any:
        return await Holdfast.step("inside", step) + await Holdfast.step("itself", child, 5)

    async with bench.worker():
        task = await bench.app.dispatch(parent)
        assert await task.result(timeout=60) == 8
    assert number_of(bench, "child") == 0


async def test_a_draining_worker_puts_down_what_waits(bench: Bench) -> None:
    @bench.app.durable(name="child", queue="nobody")
    async def child() -> None: ...

    @bench.app.durable(name="parent", retry_policy=RetryPolicy(max_attempts=1))
    async def parent() -> None:
        await child()

    async with bench.worker(queues=["default"]):
        task = await bench.app.dispatch(parent)

        async def asked() -> bool:
            return number_of(bench, "child") == 1

        await until(asked)
    assert await status(bench, task) is TaskStatus.WAITING


async def test_a_task_knows_its_parent_and_the_root_of_its_family(bench: Bench) -> None:
    seen: dict[int, tuple[Any, ...]] = {}

    @bench.app.durable(name="deep")
    async def deep(levels: int) -> None:
        here = current()
        fields = log.fields_of(here)
        seen[levels] = here.task_id, here.parent, here.root, fields["holdfast_root_id"]
        if levels:
            await asyncio.gather(deep(levels - 1), Holdfast.sleep(0))

    async with bench.worker():
        task = await bench.app.dispatch(deep, 3)
        await task.result(timeout=60)
    assert {(root, field) for _, _, root, field in seen.values()} == {(task.id, str(task.id))}
    assert [seen[n][1] for n in (2, 1, 0)] == [seen[n][0] for n in (3, 2, 1)]
    assert seen[3][1] is None


async def test_a_function_that_calls_itself_makes_room_for_the_call(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one of its kind at a time may run, it would stay in memory for what cannot begin."""
    monkeypatch.setattr("holdfast.flow.arrivals._LINGER", 3600.0)

    @bench.app.durable(name="down", max_concurrent=1)
    async def down(level: int) -> int:
        return level and 1 + await down(level - 1)

    async with bench.worker():
        task = await bench.app.dispatch(down, 5)
        assert await task.result(timeout=30) == 5
