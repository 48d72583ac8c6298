"""Routes of `/v1/crawl/identities`: manage identities and show their health. Headers are never returned."""

from collections.abc import Sequence
from typing import Annotated, Literal

import msgspec
from litestar.handlers import HTTPRouteHandler
from msgspec import Meta

from tidegate.http.dispatch import RequestInput
from tidegate.http.routes import route
from tidegate.systems.crawl.api.crawls import TAG
from tidegate.systems.crawl.identities import Identity, IdentityRegistry

IdentityName = Annotated[str, Meta(min_length=1, max_length=80, pattern=r"^[A-Za-z0-9_.-]+$")]


class IdentityHeaders(RequestInput, frozen=True, kw_only=True):
    """The headers that an identity sends with every call."""

    headers: Annotated[dict[str, str], Meta(min_length=1, extra_json_schema={"format": "headers"})]
    """Must include User-Agent. Stored encrypted and never shown."""


class Identities(msgspec.Struct, frozen=True, kw_only=True):
    """All identities, ordered by name."""

    identities: list[Identity]


class IdentityRemoved(msgspec.Struct, frozen=True, kw_only=True):
    """Confirms that an identity was removed."""

    name: str
    outcome: Literal["removed"] = "removed"


class IdentityRoutes:
    """Handlers of the identity routes."""

    def __init__(self, identities: IdentityRegistry) -> None:
        self._identities = identities

    def routes(self) -> Sequence[HTTPRouteHandler]:
        """The routes of identities."""
        place = "/v1/crawl/identities/{name}"
        return [
            route("GET", "/v1/crawl/identities", self.list_identities, TAG),
            route("GET", place, self.show_identity, TAG),
            route("PUT", place, self.put_identity, TAG),
            route("DELETE", place, self.remove_identity, TAG),
            route("POST", f"{place}/enable", self.enable_identity, TAG),
            route("POST", f"{place}/disable", self.disable_identity, TAG),
        ]

    async def list_identities(self) -> Identities:
        """List identities, with their health at hosts that refused them."""
        return Identities(identities=list(await self._identities.list()))

    async def show_identity(self, name: IdentityName) -> Identity:
        """Show one identity with its health."""
        return await self._identities.get(name)

    async def put_identity(self, name: IdentityName, body: IdentityHeaders) -> Identity:
        """Add an identity, or replace the headers of an existing one."""
        return await self._identities.add(name, body.headers)

    async def remove_identity(self, name: IdentityName) -> IdentityRemoved:
        """Delete an identity. Calls in progress finish."""
        await self._identities.remove(name)
        return IdentityRemoved(name=name)

    async def enable_identity(self, name: IdentityName) -> Identity:
        """Enable an identity, so that it is used again."""
        await self._identities.enable(name)
        return await self._identities.get(name)

    async def disable_identity(self, name: IdentityName) -> Identity:
        """Disable an identity: it is kept, but not used."""
        await self._identities.disable(name)
        return await self._identities.get(name)
