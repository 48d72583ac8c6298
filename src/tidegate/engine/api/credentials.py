"""`/v1/credentials`: add, list, test and delete credentials. Responses never contain a secret."""

from collections.abc import Sequence
from typing import Annotated, ClassVar
from urllib.parse import quote

import msgspec
from litestar import Response
from litestar.handlers import HTTPRouteHandler
from msgspec import Meta

from tidegate.core.errors import InvalidArgument
from tidegate.engine.collection import Collection
from tidegate.engine.credentials import Credential, CredentialCheck, CredentialManager
from tidegate.http.dispatch import RequestInput
from tidegate.http.problems import ProblemType, RequestFailed
from tidegate.http.routes import given, one_of, route

TAG = "credentials"

_PLAIN = {"format": "user-name"}
Name = Annotated[str, Meta(min_length=1, max_length=100, extra_json_schema=_PLAIN)]
AppNumber = Annotated[int, Meta(ge=1, le=10**15)]


class App(RequestInput, frozen=True, kw_only=True):
    """An installation of a GitHub App. Its tokens are issued on demand."""

    app_id: AppNumber
    installation_id: AppNumber
    private_key: Annotated[str, Meta(extra_json_schema={"format": "rsa-private-key"})]
    """The app's RSA key in PEM. It is stored encrypted and never returned."""

    def __repr__(self) -> str:
        return f"App(app_id={self.app_id}, installation_id={self.installation_id})"


class CredentialRequest(RequestInput, frozen=True, kw_only=True):
    """A credential to add. Exactly one of `token` and `app` is required."""

    NARROWER: ClassVar = one_of("token", "app") | {
        "if": {"anyOf": [given("app"), {"required": ["check"], "properties": {"check": {"const": False}}}]},
        "then": given("owner"),
    }

    token: Annotated[str, Meta(extra_json_schema={"format": "github-token"})] | None = None
    """The token. It is stored encrypted and never returned."""
    app: App | None = None
    owner: Annotated[str, Meta(min_length=1, max_length=200, extra_json_schema=_PLAIN)] | None = None
    """The person or team responsible for the credential. Default: the account's login. Required for an app."""
    user: Annotated[str, Meta(min_length=1, max_length=200, extra_json_schema={"format": "user"})] | None = None
    """Restricts the credential to the runs of this user. Default: it serves the runs of all users."""
    name: Name | None = None
    """Name of the credential. If the account already has a credential of this name, its secret is replaced."""
    check: bool = True
    """Whether to verify the secret with GitHub before it is stored. Can be disabled only if `owner` is given."""

    def __repr__(self) -> str:
        return f"CredentialRequest(owner={self.owner!r}, name={self.name!r})"


class CredentialList(msgspec.Struct, frozen=True, kw_only=True):
    """All credentials, oldest first."""

    credentials: list[Credential]


class CredentialRoutes:
    """The handlers of the routes under `/v1/credentials`."""

    def __init__(self, collection: Collection) -> None:
        self._collection = collection

    @property
    def _manager(self) -> CredentialManager:
        return self._collection.credential_manager()

    def routes(self) -> Sequence[HTTPRouteHandler]:
        """The routes of credentials."""
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
            # Before the others, because a name may contain a slash.
            route(
                "POST", "/v1/credentials/{name:path}/test", self.test_credential, TAG, problems=(ProblemType.CONFLICT,)
            ),
            route("GET", "/v1/credentials/{name:path}", self.show_credential, TAG),
            route("DELETE", "/v1/credentials/{name:path}", self.remove_credential, TAG),
        ]

    async def list_credentials(self) -> CredentialList:
        """List credentials with owner, account, served users and validity. Secrets are not included."""
        return CredentialList(credentials=list(await self._manager.list()))

    async def add_credential(self, body: CredentialRequest) -> Response[Credential]:
        """Store a token or the key of a GitHub App. It is encrypted and used from now on.

        GitHub is asked which account it belongs to. Repeating the request replaces the secret and changes nothing else.
        """
        if (body.token is None) == (body.app is None):
            raise RequestFailed(ProblemType.INVALID, "exactly one of token and app is required", field="token")
        added = await (self._add_token(body.token, body) if body.token is not None else self._add_app(body))
        return Response(added, headers={"Location": f"/v1/credentials/{quote(added.name, safe='')}"})

    async def show_credential(self, name: Name) -> Credential:
        """Show one credential. The secret is not included."""
        return await self._manager.get(name)

    async def remove_credential(self, name: Name) -> Credential:
        """Delete a credential. New requests no longer use it; requests in progress are not interrupted."""
        return await self._manager.remove(name)

    async def test_credential(self, name: Name) -> CredentialCheck:
        """Check a credential with GitHub, report the remaining quota and store the result.

        409 if the credential was stored without a check and its account already has credentials that serve other runs.
        """
        return await self._manager.test(name)

    async def _add_token(self, token: str, body: CredentialRequest) -> Credential:
        return await self._manager.add_token(
            token, owner=body.owner, user_id=self._user_id(body), name=body.name, check=body.check
        )

    async def _add_app(self, body: CredentialRequest) -> Credential:
        app, owner = body.app, body.owner
        if app is None or owner is None:
            raise RequestFailed(ProblemType.INVALID, "owner: required for an app", field="owner")
        return await self._manager.add_installation(
            app.private_key,
            app_id=app.app_id,
            installation_id=app.installation_id,
            owner=owner,
            user_id=self._user_id(body),
            name=body.name,
            check=body.check,
        )

    def _user_id(self, body: CredentialRequest) -> str | None:
        if body.user is None:
            return None
        try:
            return self._collection.cell().plugin.user(body.user)
        except InvalidArgument as error:
            raise RequestFailed(ProblemType.INVALID, str(error), field="user") from None
