"""The words of a class-based worker for how its attempt ends."""

from holdfast.errors import InvalidInput
from holdfast.tasks.lifecycle import Done, Errored, Outcome
from holdfast.tasks.task import Failure

__all__ = ["ending"]


def ending(status: str, error: str | None = None) -> Outcome:
    match status:
        case "done":
            return Done(b"null")
        case "retry" | "failed":
            message = error or f"its worker released it as {status}"
            return Errored(Failure(type="Released", message=message), retryable=status == "retry")
        case _:
            raise InvalidInput(f"a lease is released as done, failed or retry, not {status!r:.80}")
