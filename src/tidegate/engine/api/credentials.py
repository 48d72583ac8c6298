"""`/v1/credentials`: whose tokens may be used. A secret goes in, and never comes out."""

from collections.abc import Sequence
from typing import Annotated, ClassVar
from urllib.parse import quote

import msgspec
from litestar import Response
from litestar.handlers import HTTPRouteHandler
from msgspec import Meta

from tidegate.engine.api.subjects import Login, read_login
from tidegate.engine.collection import Collection
from tidegate.engine.credentials import Credential, CredentialBook, CredentialCheck
from tidegate.http.dispatch import Given
from tidegate.http.problems import ProblemType, Trouble
from tidegate.http.routes import given, one_of, route

TAG = "credentials"

_PLAIN = {"format": "user-name"}
Name = Annotated[str, Meta(min_length=1, max_length=100, extra_json_schema=_PLAIN)]
AppNumber = Annotated[int, Meta(ge=1, le=10**15)]


class App(Given, frozen=True, kw_only=True):
    """An installation of a GitHub App: tokens are issued to it when they are needed."""

    app_id: AppNumber
    installation_id: AppNumber
    private_key: Annotated[str, Meta(extra_json_schema={"format": "rsa-private-key"})]
    """The app's RSA key in PEM. It is encrypted, and not shown to anybody."""

    def __repr__(self) -> str:
        return f"App(app_id={self.app_id}, installation_id={self.installation_id})"


class NewCredential(Given, frozen=True, kw_only=True):
    """A token or an app. Give either `token` or `app`."""

    NARROWER: ClassVar = one_of("token", "app") | {
        "if": {"anyOf": [given("app"), {"required": ["check"], "properties": {"check": {"const": False}}}]},
        "then": given("owner"),
    }

    token: Annotated[str, Meta(extra_json_schema={"format": "github-token"})] | None = None
    """It is encrypted, and not shown to anybody."""
    app: App | None = None
    owner: Annotated[str, Meta(min_length=1, max_length=200, extra_json_schema=_PLAIN)] | None = None
    """Who answers for it; the account's login where it is left out. An app needs one."""
    user: Login | None = None
    """The only user whose runs it serves; it serves everybody where this is left out."""
    name: Name | None = None
    """What to call it; where there is one of this name for the same account, its secret is replaced."""
    check: bool = True
    """Whether GitHub is asked at once. It must be, unless an owner is named."""

    def __repr__(self) -> str:
        return f"NewCredential(owner={self.owner!r}, name={self.name!r})"


class CredentialList(msgspec.Struct, frozen=True, kw_only=True):
    """All credentials, the oldest first."""

    credentials: list[Credential]


class Credentials:
    """The handlers."""

    def __init__(self, collection: Collection) -> None:
        self._collection = collection

    @property
    def _book(self) -> CredentialBook:
        return self._collection.book()

    def routes(self) -> Sequence[HTTPRouteHandler]:
        """What can be done with credentials."""
        return [
            route("GET", "/v1/credentials", self.list_credentials, TAG),
            route(
                "POST",
                "/v1/credentials",
                self.add_credential,
                TAG,
                status=201,
                headers={"Location": "The address of the credential."},
                problems=(ProblemType.CONFLICT, ProblemType.SECRET_REFUSED),
            ),
            # Before the others, since a name may contain a slash.
            route(
                "POST", "/v1/credentials/{name:path}/test", self.test_credential, TAG, problems=(ProblemType.CONFLICT,)
            ),
            route("GET", "/v1/credentials/{name:path}", self.show_credential, TAG),
            route("DELETE", "/v1/credentials/{name:path}", self.remove_credential, TAG),
        ]

    async def list_credentials(self) -> CredentialList:
        """List credentials: owner, account, whom they serve, whether they are valid. Never a secret."""
        return CredentialList(credentials=list(await self._book.list()))

    async def add_credential(self, body: NewCredential) -> Response[Credential]:
        """Store a token, or the key of a GitHub App; it is encrypted, and serves from now on.

        GitHub is asked whose it is. Sending the same again replaces the secret, and changes nothing else.
        """
        if (body.token is None) == (body.app is None):
            raise Trouble(ProblemType.INVALID, "give either token or app", field="token")
        added = await (self._add_token(body.token, body) if body.token is not None else self._add_app(body))
        return Response(added, headers={"Location": f"/v1/credentials/{quote(added.name, safe='')}"})

    async def show_credential(self, name: Name) -> Credential:
        """Show one credential. Never a secret."""
        return await self._book.get(name)

    async def remove_credential(self, name: Name) -> Credential:
        """Delete a credential: nobody uses it from now on. Calls under way end as they will."""
        return await self._book.remove(name)

    async def test_credential(self, name: Name) -> CredentialCheck:
        """Ask GitHub whether a credential is good and what is left of it; the answer is noted.

        409 where it was stored unasked, and turns out to be of an account that serves others already.
        """
        return await self._book.test(name)

    async def _add_token(self, token: str, body: NewCredential) -> Credential:
        return await self._book.add_token(
            token, owner=body.owner, user_id=_user_id(body), name=body.name, check=body.check
        )

    async def _add_app(self, body: NewCredential) -> Credential:
        app, owner = body.app, body.owner
        if app is None or owner is None:
            raise Trouble(ProblemType.INVALID, "owner: an app needs somebody who answers for it", field="owner")
        return await self._book.add_installation(
            app.private_key,
            app_id=app.app_id,
            installation_id=app.installation_id,
            owner=owner,
            user_id=_user_id(body),
            name=body.name,
            check=body.check,
        )


def _user_id(body: NewCredential) -> str | None:
    return None if body.user is None else read_login(body.user, "user")
