"""Requests that are done once: the same `Idempotency-Key` with the same request is answered as the
first one was, for a day."""

from collections.abc import Awaitable, Callable
from hashlib import sha256

from starlette.requests import Request
from starlette.responses import Response

from holdfast.client import Client
from holdfast.desk.caller import Caller
from holdfast.http.problems import Problem, problem_of, wrong_parameter
from holdfast.ids import new_grant
from holdfast.records import RequestAnswer

__all__ = ["once"]

HEADER = "Idempotency-Key"


async def once(
    client: Client,
    request: Request,
    caller: Caller,
    body: bytes,
    act: Callable[[], Awaitable[Response]],
) -> Response:
    """Does it, or answers what was answered."""
    key = request.headers.get(HEADER)
    if key is None:
        return await act()
    if not 1 <= len(key) <= 255:
        raise wrong_parameter(HEADER, "it has 1 to 255 characters", status=400)
    store, token = client.store, new_grant()
    scope = f"{caller.tenant or '*'} {sha256(caller.name.encode()).hexdigest()}"
    begun = await store.begin_request(scope, key, _digest(request, body), token=token)
    match begun.state:
        case "done":
            return _again(begun)
        case "running":
            raise Problem(
                409, "in_progress", "this is being done just now; ask again", headers=_SOON
            )
        case "other":
            raise Problem(
                422,
                "key_reused",
                "this Idempotency-Key was used for another request; make a new one",
            )
    try:
        response = await act()
    except BaseException as error:
        problem = problem_of(error)
        if problem is None or problem.status >= 500:
            await store.drop_request(scope, key, token=token)
            raise
        response = problem.response()
    await store.end_request(
        scope,
        key,
        token=token,
        status=response.status_code,
        headers=_kept(response),
        body=bytes(response.body),
    )
    return response


_SOON = {"Retry-After": "1"}
_NOT_KEPT = {"connection", "content-length"}


def _digest(request: Request, body: bytes) -> bytes:
    line = f"{request.method} {request.url.path}?{request.url.query}\0"
    return sha256(line.encode() + body).digest()


def _kept(response: Response) -> dict[str, str]:
    """What the answer said of itself, `Location` above all; not what is about its connection."""
    return {name: value for name, value in response.headers.items() if name not in _NOT_KEPT}


def _again(first: RequestAnswer) -> Response:
    headers = {**first.headers, "Idempotent-Replayed": "true"}
    return Response(first.body or b"", first.status or 200, headers=headers)
