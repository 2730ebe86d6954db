"""What all routes share: the app, the door, the desk, the seal, the events."""

from collections.abc import Sequence

from holdfast.app import Holdfast
from holdfast.client import Client
from holdfast.desk.caller import Caller
from holdfast.desk.desk import Desk
from holdfast.http.auth import BootstrapKey, Door, Keys
from holdfast.http.cursors import Cursors
from holdfast.http.granting import Granting
from holdfast.http.hub import Hubs
from holdfast.http.pulse import Pulse
from holdfast.http.rates import Buckets
from holdfast.http.signing import Signer
from holdfast.http.stored_keys import StoredKeys
from holdfast.http.sweeping import Sweeping
from holdfast.http.tokens import Tokens

__all__ = ["House"]

_RATE, _BURST = 500.0, 1000.0  # requests of one key
_STREAMS = 100  # of events, of one key
_STARTS, _STARTS_AT_ONCE = 1.0, 1000.0  # workers that one key registers
_FAILURES, _FAILURES_AT_ONCE = 5.0, 50.0  # wrong keys from one address


class House:
    """Made once per application."""

    def __init__(
        self,
        app: Holdfast,
        *,
        api_key: str | None = None,
        keys: Sequence[Keys] = (),
        signing_key: str | None = None,
        rate: float = _RATE,
        burst: float = _BURST,
        streams: int = _STREAMS,
    ) -> None:
        clock = app.home.clock
        self.app = app
        self.signer = Signer(signing_key or app.config.signing_key)
        self.cursors = Cursors(self.signer)
        self.tokens = Tokens(self.signer)
        self._is_walled: bool | None = None
        self.sweeping = Sweeping(app, self.client)
        self.granting = Granting(app, self.client, self.sweeping)
        self.hubs = Hubs(self.desk_for, most_each=streams)
        self.registrations = Buckets(clock, rate=_STARTS, burst=_STARTS_AT_ONCE)
        self.pulse = Pulse(app, self.client)
        self.door = Door(
            [BootstrapKey(api_key or app.config.api_key), *keys, StoredKeys(clock, self.client)],
            Buckets(clock, rate=rate, burst=burst),
            Buckets(clock, rate=_FAILURES, burst=_FAILURES_AT_ONCE),
        )

    async def client(self, tenant: str | None = None) -> Client:
        """In the name of one tenant, or of all; that counts only behind a wall, where the database
        itself looks at it."""
        client = await self.app.home.client()
        if self._is_walled is None:
            self._is_walled = await client.store.is_walled()
        return client.as_tenant(tenant) if self._is_walled else client

    async def desk_for(self, caller: Caller) -> Desk:
        return await self.app.desk(caller, await self.client(caller.tenant))

    async def close(self) -> None:
        await self.hubs.close()
        await self.sweeping.close()
