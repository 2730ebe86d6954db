"""An agent: a model says which tool to use, until it knows the answer. What the model said and what
the tools found is recorded: after a crash it goes on, and pays for no word twice."""

import asyncio
from typing import Any

from holdfast import Holdfast, NonRetryable

Message = dict[str, Any]


async def weather(city: str) -> str:
    return {"Oslo": "snow", "Rome": "sun"}.get(city, "unknown")


async def pack(weather: str) -> str:
    return {"snow": "a coat", "sun": "a hat"}.get(weather, "an umbrella")


TOOLS = {"weather": weather, "pack": pack}


async def ask_model(messages: list[Message]) -> Message:
    """Put the call of your model here; this one thinks along fixed lines."""
    match [message["content"] for message in messages]:
        case [question]:
            return {"tool": "weather", "argument": question.split()[-1].strip("?")}
        case [_, found]:
            return {"tool": "pack", "argument": found}
        case [*_, thing]:
            return {"answer": f"Take {thing}."}
    return {"answer": "I do not know."}


@Holdfast.durable
async def agent(question: str, most_turns: int = 10) -> str:
    messages: list[Message] = [{"role": "user", "content": question}]
    for turn in range(most_turns):
        said = await Holdfast.step(f"think {turn}", ask_model, messages)
        if "answer" in said:
            return str(said["answer"])
        tool = TOOLS[said["tool"]]
        found = await Holdfast.step(f"use {said['tool']}", tool, said["argument"])
        messages.append({"role": "tool", "content": found})
    raise NonRetryable(f"no answer after {most_turns} turns")


async def main() -> None:
    async with Holdfast.bootstrap(serve=True) as app:
        task = await app.dispatch(agent, "What do I need in Oslo?")
        print(await task.result(timeout=60))


if __name__ == "__main__":
    asyncio.run(main())
