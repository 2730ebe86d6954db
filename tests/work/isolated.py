"""Functions that run in processes of their own: another process must find them here."""

import logging
import os
from typing import Any

from holdfast import Holdfast, RetryPolicy, current, durable


@durable(isolation="process", retry_policy=RetryPolicy(max_attempts=1))
def login(user: str, password: str, card: str) -> None:
    logging.getLogger("shop").warning("%s%s logs in with %s", "x" * 7970, user, password)
    try:
        raise KeyError(password)
    except KeyError as error:
        error.add_note(f"it was {password}")
        raise RuntimeError("x" * 3990 + card) from error


PASSING = RetryPolicy(max_attempts=3, initial_delay=0.01, retry_for=(TimeoutError,))


@durable(isolation="process", retry_policy=PASSING)
def dies() -> None:
    os._exit(3)


@durable(isolation="process", max_tries=1)
async def calls() -> Any:
    return await noop()


@durable(isolation="process", max_tries=1)
def calls_in_sync_code() -> Any:
    return noop.function, noop_in_sync_code()


@durable(isolation="process", max_tries=1)
async def maps() -> Any:
    return await noop.map([])


@durable(isolation="process", max_tries=1)
async def steps() -> Any:
    return await Holdfast.step("one", int)


@durable(isolation="process", max_tries=1)
async def sleeps() -> None:
    await Holdfast.sleep(1)


@durable(isolation="process", max_tries=1)
def takes_a_uuid() -> str:
    return str(current().uuid())


@durable(isolation="process", max_tries=1)
def reads_the_time() -> str:
    return str(current().now())


@durable(isolation="process", max_tries=1)
def takes_a_chance() -> float:
    return current().random()


@durable
async def noop() -> None: ...


@durable
def noop_in_sync_code() -> None: ...
