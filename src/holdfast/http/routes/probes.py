"""Probes, for everybody: they say whether, and never what."""

import msgspec
from starlette.responses import Response

from holdfast.http.pulse import Health
from holdfast.http.rendering import json
from holdfast.http.routing import PUBLIC, Ask, Routes

__all__ = ["routes"]

routes = Routes("probes")


class Probe(msgspec.Struct, frozen=True, kw_only=True):
    status: str


class Verbose(msgspec.Struct, frozen=True, kw_only=True):
    """`verbose`: taken, and says no more."""

    verbose: str | None = None


@routes.get("/health", scope=PUBLIC, query=Verbose, answers={200: Health, 503: Health})
async def show_health(ask: Ask) -> Response:
    """503: not ready, draining, or the store does not answer."""
    health = await ask.house.pulse.health()
    return json(health, 200 if health.status == "healthy" else 503)


@routes.get("/livez", scope=PUBLIC, query=Verbose, answers={200: Probe})
async def show_livez(ask: Ask) -> Response:
    """Alive: this loop turns. Never asks the store."""
    return json(Probe(status="alive"))


@routes.get("/readyz", scope=PUBLIC, query=Verbose, answers={200: Probe, 503: Probe})
async def show_readyz(ask: Ask) -> Response:
    """Ready: the store answers."""
    health = await ask.house.pulse.health()
    return json(Probe(status=health.status), 200 if health.status == "healthy" else 503)


@routes.get("/startupz", scope=PUBLIC, query=Verbose, answers={200: Probe, 503: Probe})
async def show_startupz(ask: Ask) -> Response:
    """Started: the store has answered once."""
    pulse = ask.house.pulse
    started = pulse.started or await pulse.store_answers()
    return json(Probe(status="started" if started else "starting"), 200 if started else 503)
