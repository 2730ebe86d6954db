"""What all parts of a desk over a store share: who asks, and the audit."""

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from holdfast.client import Client
from holdfast.desk.caller import Caller
from holdfast.observer import Observer
from holdfast.redaction import Redaction
from holdfast.registry import Registry

__all__ = ["Base"]

_MOST_NAMED = 100


class Base:
    """For one caller. Cheap to make: one for each request."""

    def __init__(
        self,
        client: Client,
        functions: Registry,
        caller: Caller,
        *,
        observer: Observer,
        default_tries: int = 3,
        redaction: Redaction | None = None,
    ) -> None:
        self._client, self._functions, self._caller = client, functions, caller
        self._observer, self._default_tries = observer, default_tries
        self._store, self._redaction = client.store, redaction or Redaction()

    async def _note(self, verb: str, subject: str, **detail: Any) -> None:
        """Before it is done: nothing is ever changed that the audit does not know of."""
        given = {name: value for name, value in detail.items() if value is not None}
        caller = self._caller
        await self._store.note(caller.name, verb, subject, tenant=caller.tenant, detail=given)

    def _is_ours(self, tenant: str | None) -> bool:
        return self._caller.tenant in (None, tenant)

    def _tenant_to_see(self, wanted: str | None) -> str | None:
        """Never another's, whatever is wanted."""
        return self._caller.tenant or wanted or None

    def _is_anothers(self, wanted: str | None) -> bool:
        """Another tenant's list is empty, not refused: no filter tells who else is here."""
        return wanted is not None and not self._is_ours(wanted)

    async def _note_tasks(self, verb: str, ids: Sequence[UUID]) -> None:
        if len(ids) == 1:
            await self._note(verb, str(ids[0]))
        else:
            named = [str(id) for id in ids[:_MOST_NAMED]]
            await self._note(verb, f"{len(ids)} tasks", tasks=named)
