"""The admin API, `/_sim/`: read, change, inject faults. No limits apply here, and calls are not counted."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import msgspec
from aiohttp import web

from tidegate_simulators.errors import InvalidArgument, NotFound
from tidegate_simulators.github.config import FaultKind, parse_faults
from tidegate_simulators.github.truth import ESSENTIAL

if TYPE_CHECKING:
    from tidegate_simulators.github.simulator import GithubSimulator


class _Injection(msgspec.Struct, forbid_unknown_fields=True):
    kind: FaultKind | None = None
    times: int = 1
    route: str | None = None
    contains: str | None = None
    rules: str | None = None
    """Instead of one injection: the shares of calls that fail from now on."""


class _App(msgspec.Struct, forbid_unknown_fields=True):
    id: int
    public_key: str
    installations: dict[int, tuple[int, int]]


class _Hook(msgspec.Struct, forbid_unknown_fields=True):
    url: str
    secret: str
    events: list[str] | None = None


class _Redelivery(msgspec.Struct, forbid_unknown_fields=True):
    delivery: str | None = None
    """None: all that failed."""


class _Revocation(msgspec.Struct, forbid_unknown_fields=True):
    token: str


Query = Mapping[str, str]


class Admin:
    """Answers with JSON; invalid requests are refused with 400 and the reason."""

    def __init__(self, simulator: "GithubSimulator") -> None:
        self._simulator = simulator
        self._actions: dict[tuple[str, str], Callable[[Query, bytes], Any]] = {
            ("GET", "report"): self._report,
            ("GET", "perfect"): self._perfect,
            ("GET", "world"): self._world,
            ("GET", "tokens"): self._tokens,
            ("POST", "revoke"): self._revoke,
            ("POST", "mutate"): self._mutate,
            ("POST", "faults"): self._inject,
            ("DELETE", "faults"): self._clear_faults,
            ("POST", "apps"): self._register_app,
            ("POST", "hooks"): self._register_hook,
            ("GET", "deliveries"): self._deliveries,
            ("POST", "redeliver"): self._redeliver,
            ("POST", "clear"): self._clear,
        }

    async def handle(self, request: web.BaseRequest, path: str, query: Query) -> web.Response:
        """Execute an admin request."""
        body = await request.read() if request.can_read_body else b""
        name = path.removeprefix("/_sim/")
        try:
            if name.startswith("truth/"):
                return _json(200, self._simulator.truth(name.removeprefix("truth/")))
            action = self._actions.get((request.method, name))
            if action is None:
                raise NotFound("action", f"{request.method} {path}")
            return _json(200, action(query, body))
        except NotFound as missing:
            return _json(404, {"message": str(missing)})
        except (InvalidArgument, msgspec.DecodeError) as nonsense:
            return _json(400, {"message": str(nonsense)})

    def _wanted(self, query: Query) -> tuple[list[str] | None, tuple[str, ...]]:
        """Logins (None: all) and kinds, as lists with commas."""
        logins = query.get("logins")
        include = query.get("include")
        return (logins.split(",") if logins else None), (tuple(include.split(",")) if include else ESSENTIAL)

    def _report(self, query: Query, _body: bytes) -> Any:
        return self._simulator.report(*self._wanted(query))

    def _perfect(self, query: Query, _body: bytes) -> Any:
        return self._simulator.perfect_calls(*self._wanted(query))

    def _world(self, _query: Query, _body: bytes) -> Any:
        world = self._simulator.world
        return {
            "seed": world.shape.seed,
            "epoch": world.epoch,
            "logins": world.logins(),
            "operators": world.operators(),
        }

    def _tokens(self, query: Query, _body: bytes) -> Any:
        """Tokens by login: of one user, or of all users; `count` of each."""
        text = query.get("count", "1")
        if not text.isdigit() or not 1 <= int(text) <= 100:
            raise InvalidArgument("count", text, "must be between 1 and 100")
        world = self._simulator.world
        logins = [query["login"]] if "login" in query else [*world.operators(), *world.logins()]
        return {login: [self._simulator.token_of(login, i) for i in range(int(text))] for login in logins}

    def _revoke(self, _query: Query, body: bytes) -> Any:
        self._simulator.credentials.revoke(msgspec.json.decode(body, type=_Revocation).token)
        return {"revoked": 1}

    def _mutate(self, _query: Query, body: bytes) -> Any:
        """`{"op": "open_issue", "repo": "owner/name"}`, or a list of such."""
        asked = msgspec.json.decode(body, type=dict[str, Any] | list[dict[str, Any]])
        operations = asked if isinstance(asked, list) else [asked]
        results = [self._simulator.mutate.apply(str(one.pop("op", "")), one) for one in operations]
        return {"results": results}

    def _inject(self, _query: Query, body: bytes) -> Any:
        wanted = msgspec.json.decode(body, type=_Injection)
        if wanted.rules is not None:
            self._simulator.faults.set_rules(parse_faults(wanted.rules))
        elif wanted.kind is not None:
            self._simulator.faults.inject(wanted.kind, times=wanted.times, route=wanted.route, contains=wanted.contains)
        else:
            raise InvalidArgument("kind", None, "name a kind, or rules")
        return {"injected": True}

    def _clear_faults(self, _query: Query, _body: bytes) -> Any:
        self._simulator.faults.clear()
        return {"cleared": True}

    def _register_app(self, _query: Query, body: bytes) -> Any:
        app = msgspec.json.decode(body, type=_App)
        self._simulator.credentials.register_app(app.id, app.public_key, app.installations)
        return {"registered": app.id}

    def _register_hook(self, _query: Query, body: bytes) -> Any:
        """`{"url": "http://...", "secret": "...", "events": ["issues"]}`; without `events` all."""
        hook = msgspec.json.decode(body, type=_Hook)
        return {"hook": self._simulator.webhooks.register(hook.url, hook.secret, hook.events).id}

    def _deliveries(self, _query: Query, _body: bytes) -> Any:
        return [
            {
                "id": each.id,
                "event": each.event,
                "action": each.action,
                "statuses": [one.status for one in each.attempts],
            }
            for each in self._simulator.webhooks.deliveries
        ]

    def _redeliver(self, _query: Query, body: bytes) -> Any:
        wanted = msgspec.json.decode(body or b"{}", type=_Redelivery)
        return {"sent": self._simulator.webhooks.redeliver(wanted.delivery)}

    def _clear(self, _query: Query, _body: bytes) -> Any:
        """Reset the counts; windows and pauses are kept."""
        self._simulator.ledger.clear()
        return {"cleared": True}


def _json(status: int, content: Any) -> web.Response:
    return web.Response(status=status, body=msgspec.json.encode(content), content_type="application/json")
