"""Pages of a list: the cursor that a caller brings is checked, the one it takes home is signed."""

from typing import Any
from urllib.parse import quote, urlencode

import msgspec
from starlette.responses import Response

from holdfast.desk.shapes import LeasePage, TaskPage
from holdfast.http.rendering import json
from holdfast.http.routing import Ask

__all__ = ["paged", "place_of"]


def place_of(ask: Ask, wanted: Any) -> str | None:
    """Where the page begins: a cursor is good for the caller and the filter it was made for."""
    if wanted.cursor is None:
        return None
    return ask.house.cursors.take(wanted.cursor, ask.caller.tenant, _filter(wanted))


def paged(ask: Ask, wanted: Any, page: TaskPage | LeasePage) -> Response:
    if page.next_cursor is None:
        return json(page)
    cursor = ask.house.cursors.give(page.next_cursor, ask.caller.tenant, _filter(wanted))
    again: dict[str, Any] = {**ask.request.query_params, "cursor": cursor}
    link = f'<{quote(ask.request.scope["path"])}?{urlencode(again)}>; rel="next"'
    return json(msgspec.structs.replace(page, next_cursor=cursor), headers={"Link": link})


def _filter(wanted: Any) -> Any:
    return msgspec.structs.replace(wanted, cursor=None, limit=0)
