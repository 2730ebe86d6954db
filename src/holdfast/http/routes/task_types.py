"""Which functions there are, with the JSON Schema of their arguments."""

from starlette.responses import Response

from holdfast.desk.shapes import TaskType
from holdfast.http.rendering import Listed, json
from holdfast.http.routing import Ask, Routes

__all__ = ["routes"]

routes = Routes("task types")


@routes.get("/v1/task-types", scope="tasks:read", answers={200: Listed[TaskType]})
async def list_task_types(ask: Ask) -> Response:
    """Those that this process knows."""
    return json(Listed(data=await ask.desk.task_types()))
