"""The door behind the stage, `/admin/`: look, change, spoil. No limits apply here, and nothing here is counted."""

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl

import msgspec

from tidegate.kernel.errors import InvalidArgument, NotFound
from tidegate.simulators.game.config import FaultKind, parse_faults
from tidegate.simulators.game.documents import KEPT_FIELDS
from tidegate.simulators.game.messages import Reply, Request, error

if TYPE_CHECKING:
    from tidegate.simulators.game.simulator import GameSimulator

PREFIX = b"/admin/"
Query = Mapping[str, str]


class _Injection(msgspec.Struct, forbid_unknown_fields=True):
    kind: FaultKind | None = None
    times: int = 1
    subject: int | None = None
    rules: str | None = None
    """Instead of one injection: the shares of calls that fail from now on."""


class _Passing(msgspec.Struct, forbid_unknown_fields=True):
    advance_s: float


class Admin:
    """Answers with JSON; nonsense is refused with 400 and the reason."""

    def __init__(self, simulator: "GameSimulator") -> None:
        self._simulator = simulator
        self._actions: dict[tuple[str, str], Callable[[Query, bytes], Any]] = {
            ("GET", "report"): self._report,
            ("GET", "world"): self._world,
            ("POST", "faults"): self._inject,
            ("DELETE", "faults"): self._clear_faults,
            ("POST", "clock"): self._pass_time,
            ("POST", "pardon"): self._pardon,
            ("POST", "clear"): self._clear,
        }
        self._actions_on_one: dict[tuple[str, str], Callable[[int, Query], Any]] = {
            ("GET", "truth"): self._truth,
            ("GET", "calls"): self._calls,
            ("POST", "change"): self._change,
        }

    def handle(self, request: Request, body: bytes) -> Reply:
        """Do what is asked."""
        method = request.method.decode().replace("HEAD", "GET")
        query = dict(parse_qsl(request.query.decode("latin-1")))
        name, _, subject = request.path.removeprefix(PREFIX).decode("latin-1").partition("/")
        try:
            if (method, name) in self._actions_on_one:
                return _json(self._actions_on_one[method, name](_number(subject), query))
            action = None if subject else self._actions.get((method, name))
            if action is None:
                return error(404, "unknown", f"There is no {method} {request.path.decode('latin-1')}.")
            return _json(action(query, body))
        except NotFound as missing:
            return error(404, "not_found", str(missing))
        except (InvalidArgument, msgspec.DecodeError) as nonsense:
            return error(400, "nonsense", str(nonsense))

    def _report(self, _query: Query, _body: bytes) -> Any:
        return self._simulator.report()

    def _world(self, _query: Query, _body: bytes) -> Any:
        return {
            "shape": self._simulator.config.world,
            "limits": self._simulator.config.limits,
            "now_ms": self._simulator.clock.now_ms(),
            "kept_fields": KEPT_FIELDS,
        }

    def _truth(self, subject: int, query: Query) -> Any:
        """What a character is now, or `at` a moment in ISO 8601."""
        return self._simulator.truth(subject, _moment(query["at"]) if "at" in query else None)

    def _calls(self, subject: int, _query: Query) -> Any:
        return {"subject": subject, "calls": self._simulator.calls_of(subject)}

    def _change(self, subject: int, _query: Query) -> Any:
        return {"subject": subject, "version": self._simulator.change(subject)}

    def _inject(self, _query: Query, body: bytes) -> Any:
        wanted = msgspec.json.decode(body, type=_Injection)
        if wanted.rules is not None:
            self._simulator.faults.set_rules(parse_faults(wanted.rules))
        elif wanted.kind is not None:
            self._simulator.faults.inject(wanted.kind, times=wanted.times, subject=wanted.subject)
        else:
            raise InvalidArgument("kind", None, "name a kind, or rules")
        return {"injected": True}

    def _clear_faults(self, _query: Query, _body: bytes) -> Any:
        self._simulator.faults.clear()
        return {"cleared": True}

    def _pass_time(self, _query: Query, body: bytes) -> Any:
        self._simulator.clock.advance(msgspec.json.decode(body, type=_Passing).advance_s)
        return {"now_ms": self._simulator.clock.now_ms()}

    def _pardon(self, _query: Query, _body: bytes) -> Any:
        """Forget all strikes, and end all bans."""
        self._simulator.pardon()
        return {"pardoned": True}

    def _clear(self, _query: Query, _body: bytes) -> Any:
        """Count from zero; the windows of the limits, strikes and bans go on."""
        self._simulator.clear()
        return {"cleared": True}


def _number(text: str) -> int:
    if not text.isdigit():
        raise InvalidArgument("subject", text, "must be the id of a character")
    return int(text)


def _moment(text: str) -> datetime:
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        raise InvalidArgument("at", text, "must be a moment in ISO 8601") from None


def _json(content: Any) -> Reply:
    body = msgspec.json.encode(content)
    return Reply(200, [body], len(body))
