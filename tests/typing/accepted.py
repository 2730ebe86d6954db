"""What type checkers know of durable functions. Checked by them, never run."""

from typing import Any, assert_type

from holdfast import Holdfast, current
from holdfast.function import Call, Function, Soon
from holdfast.registry import Registry, durable
from holdfast.tasks.retry import RetryPolicy


@durable
async def charge(order: int, *, customer: str = "") -> str:
    return f"{order} {customer}"


@durable
def render(page: int) -> bytes:
    return bytes(page)


@durable(queue="mail", retry_policy=RetryPolicy(retry_for=(TimeoutError,)), timeout="5m")
async def send(to: str) -> None: ...


@durable(isolation="process", memory_limit=2**30, cpu_limit=1.5, fenced=True)
def resize(size: tuple[int, int]) -> dict[str, int]:
    return {"width": size[0]}


app = Registry()


@app.durable
async def own(*numbers: float) -> float:
    return sum(numbers)


async def uses() -> None:
    coroutine = assert_type(charge(7, customer="x"), Soon[str])
    assert_type(await coroutine, str)
    assert_type(render(7), bytes)
    assert_type(await send("x"), None)
    assert_type(resize((1, 2)), dict[str, int])
    assert_type(await own(1, 2.5), float)

    assert_type(charge.call(7, customer="x"), Call[str])
    assert_type(render.call(page=7), Call[bytes])
    assert_type(send.call("x"), Call[None])
    assert_type(resize.call((1, 2)), Call[dict[str, int]])
    assert_type(charge.options(queue="vip", delay="5m").call(7), Call[str])
    assert_type(render.options(priority=9)(7), bytes)
    assert_type(await charge.options(tenant="acme")(7), str)
    assert_type(charge.name, str)

    takes(charge)
    takes(render)


def rate_of(currency: str, *, day: int = 0) -> float:
    return len(currency) + day


async def fetch(url: str) -> list[str]:
    return [url]


@durable
async def order(number: int) -> str:
    """What a durable function may ask for has the type of what comes."""
    assert_type(await Holdfast.step("rate", rate_of, "EUR", day=1), float)
    assert_type(await Holdfast.step("fetch", fetch, "x"), list[str])
    assert_type(await Holdfast.step("pay", charge, 7, customer="x"), str)
    assert_type(await Holdfast.step("page", render, 7), bytes)
    assert_type(await Holdfast.sleep("1h"), None)
    assert_type(await render.call(7), bytes)  # a sync function as a child
    assert_type(await Holdfast.gather(charge(1), render.call(2)), tuple[str, bytes])
    three = await Holdfast.gather(charge(1), render.call(2), send("x"))
    assert_type(three, tuple[str, bytes, None])
    assert_type(await Holdfast.gather(*[charge(n) for n in range(9)], at_most=3), list[str])
    assert_type(await Holdfast.map(charge, [1, 2]), list[str])
    assert_type(await charge.map([1, 2], at_most=2), list[str])
    several = await Holdfast.map(charge, [1, 2], return_exceptions=True)
    assert_type(several, list[str | BaseException])
    assert_type(await Holdfast.wait_for_signal("ok", timeout="2d", type=bool), bool)
    async with Holdfast.timeout("1h"):
        await charge(7)
    assert_type(Holdfast.patched("x"), bool)
    assert_type(current().attempt, int)
    if number:
        await Holdfast.continue_as_new(number - 1)
    return "done"


@durable
def in_a_thread(number: int) -> str:
    assert_type(Holdfast.run(charge(number)), str)
    assert_type(Holdfast.run(Holdfast.step("rate", rate_of, "EUR")), float)
    Holdfast.run(Holdfast.sleep(1))
    return "done"


async def outside(holdfast: Holdfast) -> None:
    task = await holdfast.dispatch(order, 7)
    assert_type(await task.result(timeout=30), str)
    pages = await holdfast.dispatch_many([render.call(n) for n in range(3)])
    assert_type(await pages[0].result(), bytes)
    assert_type(holdfast.dispatch_sync(charge, 7).id.hex, str)
    limit = await holdfast.set_limit("queue", "mail", max_concurrent=5, rate_limit="100/m")
    assert_type(limit.max_concurrent, int | None)


def takes(function: Function[..., Any, Any]) -> None: ...
