"""A health endpoint beside a worker: 503 while it is not ready, and when it drains.

uvicorn health:api
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI
from fastapi.responses import JSONResponse

from holdfast import Holdfast

app = Holdfast()
lifecycle = app.create_worker_lifecycle(name="worker-1")


@asynccontextmanager
async def lifespan(_: FastAPI) -> AsyncIterator[None]:
    async with app:
        worker = asyncio.create_task(app.serve(lifecycle=lifecycle))
        yield
        app.request_worker_drain(lifecycle)
        await worker


api = FastAPI(lifespan=lifespan)


@api.get("/health", response_model=None)
async def health_check() -> JSONResponse | dict[str, Any]:
    status = app.worker_status_overview()

    if not status["ready"]:
        return JSONResponse({"status": "not_ready", "workers": status["workers"]}, status_code=503)

    if status["draining"]:
        return JSONResponse({"status": "draining", "workers": status["workers"]}, status_code=503)

    return {"status": "healthy", "workers": status["workers"]}
