"""Where a list goes on: signed, and good only for the same caller's tenant and the same filter."""

import msgspec

from holdfast.http.problems import wrong_parameter
from holdfast.http.signing import ELSEWHERE, Signer

__all__ = ["Cursors"]


class Cursors:
    def __init__(self, signer: Signer) -> None:
        self._signer = signer

    def give(self, place: str, tenant: str | None, filter: object) -> str:
        return self._signer.sign(_purpose(tenant, filter), place.encode())

    def take(self, cursor: str, tenant: str | None, filter: object) -> str:
        found = self._signer.open(_purpose(tenant, filter), cursor)
        if found is None:
            why = "it does not belong to this list"
            if self._signer.is_foreign(cursor):
                why = ELSEWHERE
            raise wrong_parameter("cursor", f"{why}; begin again without it", status=400)
        return found.decode()


def _purpose(tenant: str | None, filter: object) -> str:
    return "cursor:" + msgspec.json.encode([tenant, filter]).decode()
