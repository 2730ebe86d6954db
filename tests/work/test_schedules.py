"""Functions that run by the clock, on real workers."""

from datetime import UTC, datetime, timedelta

from holdfast import current
from tests.work.bench import Bench, until


async def test_each_time_comes_once_and_not_before_it_is_due(bench: Bench) -> None:
    ran: list[tuple[str, datetime]] = []

    @bench.app.durable(name="tick", cron="* * * * * *", max_concurrent=1)
    async def tick(word: str = "tock") -> str:
        ran.append((str(current().task_id), datetime.now(UTC)))
        return word

    async with bench.worker(), bench.worker():
        await until(lambda: len(ran) >= 3)
    tasks = (await bench.app.list_tasks(limit=200)).tasks
    planned = {str(task.id): task.run_at or task.created_at for task in tasks}
    assert len(set(planned.values())) == len(planned)  # one for each second
    assert len({id for id, _ in ran}) == len(ran)
    # One clock here, and on PostgreSQL the server's is the same one.
    assert all(planned[id] <= at for id, at in ran)
    first = min(planned[id] for id, _ in ran)
    assert {planned[id] for id, _ in ran} == {first + timedelta(seconds=n) for n in range(len(ran))}


async def test_workers_hear_of_functions_that_come_late(bench: Bench, monkeypatch) -> None:
    monkeypatch.setattr("holdfast.app.serving.EVERY", 0.05)
    ran: list[int] = []
    async with bench.worker():

        @bench.app.durable(name="late", cron="* * * * * *")
        async def late() -> None:
            ran.append(1)

        await until(lambda: ran)
