"""Every error as a problem (RFC 9457): what happened, and what to do. Never what is inside."""

from collections.abc import Mapping
from http import HTTPStatus

import msgspec
from starlette.responses import Response

from holdfast import errors

__all__ = ["Fault", "Problem", "ProblemView", "internal", "problem_of", "wrong_parameter"]

_NAMES = "urn:holdfast:problem:"  # explained in docs/reference/http.md


class Fault(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that is wrong with a request. `pointer`: where in the body (RFC 6901);
    `parameter`: which parameter or header."""

    detail: str
    pointer: str | None = None
    parameter: str | None = None


class ProblemView(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An error. Decide by `code`, which never changes; `detail` is for people."""

    type: str
    title: str
    status: int
    detail: str
    code: str
    errors: list[Fault] = []


class Problem(Exception):
    """Raised anywhere below a route, and answered as it says."""

    def __init__(
        self,
        status: int,
        code: str,
        detail: str,
        *,
        errors: list[Fault] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(detail)
        self.status, self.code, self.detail = status, code, detail
        self.errors, self.headers = errors or [], dict(headers or {})

    def view(self) -> ProblemView:
        return ProblemView(
            type=_NAMES + self.code,
            title=HTTPStatus(self.status).phrase,
            status=self.status,
            detail=self.detail,
            code=self.code,
            errors=self.errors,
        )

    def response(self) -> Response:
        return Response(
            msgspec.json.encode(self.view()),
            self.status,
            headers=self.headers,
            media_type="application/problem+json",
        )


def problem_of(error: BaseException) -> Problem | None:
    """What the house raised, as a problem; None for what nobody foresaw."""
    match error:
        case Problem():
            return error
        case errors.KeyConflict():
            return Problem(409, "key_conflict", _without_tenant(error))
        case errors.ChangedMeanwhile():
            return Problem(412, "changed_meanwhile", str(error))
        case errors.NotPossible():
            return Problem(409, "not_possible", str(error))
        case errors.UnknownType():
            return Problem(422, "unknown_type", str(error), errors=[_fault(error, "/type")])
        case errors.LeaseLost():
            return Problem(409, "lease_lost", str(error))
        case errors.Sealed():
            return Problem(409, "sealed", str(error))
        case errors.PayloadRefused():
            return Problem(422, "payload_refused", str(error))
        case errors.InvalidInput():
            return Problem(422, "invalid_input", str(error))
        case errors.HoldfastError() if isinstance(error, LookupError):
            return Problem(404, "not_found", "there is no such thing here")
        case errors.StoreUnreachable():
            return Problem(
                503,
                "store_unreachable",
                "the store does not answer; ask again",
                headers={"Retry-After": "2"},
            )
        case errors.StoreError():
            return Problem(503, "store_error", "the store cannot do this now; see the server's log")
        case _:
            return None


def _without_tenant(error: errors.KeyConflict) -> str:
    return (
        f"this idempotency key belongs to task {error.existing}, which has another type or "
        "payload; use a new key for new work, or send the same payload again"
    )


def _fault(error: Exception, pointer: str) -> Fault:
    return Fault(detail=str(error), pointer=pointer)


def wrong_parameter(name: str, detail: str, *, status: int = 422) -> Problem:
    return Problem(
        status,
        "invalid_parameter",
        f"{name}: {detail}",
        errors=[Fault(detail=detail, parameter=name)],
    )


def internal() -> Problem:
    """Nothing of what happened inside: that is in the log."""
    return Problem(
        500, "internal", "something went wrong here; nothing more is said of it but in the log"
    )
