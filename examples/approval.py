"""A person is asked, and has some days to answer. No worker is held while nobody does."""

import asyncio

from holdfast import Holdfast


async def ask(whom: str, what: str) -> None:
    print(f"to {whom}: please approve {what}")


@Holdfast.durable
async def expense(what: str, patience: str = "3d") -> str:
    for person in ("the manager", "the director"):
        await Holdfast.step(f"ask {person}", ask, person, what)
        try:
            approved = await Holdfast.wait_for_signal("answer", timeout=patience, type=bool)
        except TimeoutError:
            continue  # then the next one
        return f"{what}: {'approved' if approved else 'refused'} by {person}"
    return f"{what}: nobody answered"


async def main() -> None:
    async with Holdfast.bootstrap(serve=True) as app:
        chair = await app.dispatch(expense, "a chair")
        await app.send_signal(chair, "answer", True)  # by a button, a mail, another service
        print(await chair.result(timeout=60))

        yacht = await app.dispatch(expense, "a yacht", patience="0.2s")
        print(await yacht.result(timeout=60))


if __name__ == "__main__":
    asyncio.run(main())
