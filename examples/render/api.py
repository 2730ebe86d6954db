"""Charts by HTTP: POST /render asks for some; all paths of Holdfast's own API stand beside it.

python api.py
"""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import uvicorn
from fastapi import FastAPI
from pydantic import BaseModel, Field
from render import app, render


@asynccontextmanager
async def lifespan(_: FastAPI) -> AsyncIterator[None]:
    async with app:
        yield


api = FastAPI(lifespan=lifespan)


class Order(BaseModel):
    charts: int = Field(default=1, ge=1, le=1000)


@api.post("/render", status_code=202)
async def order(wanted: Order) -> dict[str, list[str]]:
    """They are on disk when this answers."""
    tasks = await app.dispatch_many([render.call(n) for n in range(wanted.charts)])
    return {"ids": [str(task.id) for task in tasks]}


api.mount("/", app.asgi())  # /distributed/stats, /health, /metrics, /v1/…: for this machine only

if __name__ == "__main__":
    port = int(os.environ.get("PORT", "8000"))
    uvicorn.run(api, host="127.0.0.1", port=port, access_log=False)
