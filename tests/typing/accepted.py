"""What type checkers know of durable functions. Checked by them, never run."""

from collections.abc import Coroutine
from typing import Any, assert_type

from holdfast.function import Call, Function
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


@durable(isolation="process", memory_limit=2**30, cpu_limit=1.5, concurrency_key="size")
def resize(size: tuple[int, int]) -> dict[str, int]:
    return {"width": size[0]}


app = Registry()


@app.durable
async def own(*numbers: float) -> float:
    return sum(numbers)


async def uses() -> None:
    coroutine = assert_type(charge(7, customer="x"), Coroutine[Any, Any, str])
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


def takes(function: Function[..., Any, Any]) -> None: ...
