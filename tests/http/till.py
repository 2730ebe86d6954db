"""An app that is careless with what it is given. Copied beside each test's store."""

import logging
import os

from holdfast import Holdfast, current

app = Holdfast()
logger = logging.getLogger("till")


@app.durable
async def blurt(card: str, login: dict[str, str], note: str) -> dict[str, str]:
    """Says all it knows wherever it can, and returns it."""
    logger.warning("charging %s of %s (%s)", card, login["password"], note)
    await current().progress(50, f"charging {card}")
    await Holdfast.step("look", lambda: {"token": login["password"]})
    return {"token": login["password"], "note": note}


@app.durable(max_tries=1)
async def stumble(card: str, login: dict[str, str], note: str) -> None:
    try:
        raise ValueError(f"cannot charge {card}")
    except ValueError:
        logger.exception("trouble with %s", login["password"])
        raise RuntimeError(f"{note}: gave up on {card} {login}") from None


@app.durable(max_tries=1)
def stumble_in_a_thread(card: str, login: dict[str, str], note: str) -> None:
    logger.error("charging %s", card)
    raise RuntimeError(f"{note}: gave up on {card} {login}") from ValueError(login["password"])


@app.durable(max_tries=1, isolation="process")
def stumble_apart(card: str, login: dict[str, str], note: str) -> None:
    logger.error("charging %s", card)
    assert os.getpid()
    raise RuntimeError(f"{note}: gave up on {card} {login}")


@app.durable
async def wait(card: str) -> object:
    return await Holdfast.wait_for_signal("go")
