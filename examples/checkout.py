"""Checking out an order: reserve, charge, ship. Where one fails, what was done is undone."""

import asyncio

from holdfast import Holdfast, TaskFailed


class Refused(Exception):
    """The other side says no, and would say so again."""


async def reserve(order: int) -> str:
    return f"shelf {order}"


async def release(order: int, shelf: str) -> None:
    print(f"order {order}: {shelf} is free again")


async def charge(order: int) -> str:
    return f"payment {order}"


async def refund(order: int, payment: str) -> None:
    print(f"order {order}: {payment} is paid back")


async def ship(order: int) -> str:
    if order == 13:
        raise Refused("nobody ships to the moon")
    return f"parcel {order}"


@Holdfast.durable
async def checkout(order: int) -> str:
    undo = []
    try:
        shelf = await Holdfast.step("reserve", reserve, order)
        undo.append(("release", release, shelf))
        payment = await Holdfast.step("charge", charge, order)
        undo.append(("refund", refund, payment))
        parcel = await Holdfast.step("ship", ship, order)
    except TaskFailed as failed:  # the last that was done is undone first, whatever crashes
        for name, function, what in reversed(undo):
            await Holdfast.step(name, function, order, what)
        return f"order {order} is off: {failed.message}"
    return f"order {order} is on its way: {parcel}"


async def main() -> None:
    async with Holdfast.bootstrap(serve=True) as app:
        for task in await app.dispatch_many([checkout.call(12), checkout.call(13)]):
            print(await task.result(timeout=60))


if __name__ == "__main__":
    asyncio.run(main())
