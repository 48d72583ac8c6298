"""Admin endpoints: report, change the data, inject faults."""

from datetime import datetime
from typing import TYPE_CHECKING, Any

import msgspec

from tidegate_simulators.admin import AdminEndpoints, Query
from tidegate_simulators.errors import InvalidArgument
from tidegate_simulators.game.config import FaultKind, parse_faults
from tidegate_simulators.game.documents import KEPT_FIELDS

if TYPE_CHECKING:
    from tidegate_simulators.game.simulator import GameSimulator


class _Injection(msgspec.Struct, forbid_unknown_fields=True):
    kind: FaultKind | None = None
    times: int = 1
    subject: int | None = None
    rules: str | None = None
    """Instead of one injection: the shares of calls that fail from now on."""


class _Passing(msgspec.Struct, forbid_unknown_fields=True):
    advance_s: float


class Admin(AdminEndpoints):
    """The admin interface of a game."""

    def __init__(self, simulator: "GameSimulator") -> None:
        self._simulator = simulator
        actions = {
            ("GET", "report"): self._report,
            ("GET", "world"): self._world,
            ("POST", "faults"): self._inject,
            ("DELETE", "faults"): self._clear_faults,
            ("POST", "clock"): self._pass_time,
            ("POST", "pardon"): self._pardon,
            ("POST", "clear"): self._clear,
        }
        on_one = {
            ("GET", "truth"): self._truth,
            ("GET", "calls"): self._calls,
            ("POST", "change"): self._change,
        }
        super().__init__(actions, on_one)

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
        """Reset the counts; windows of limits, strikes and bans are kept."""
        self._simulator.clear()
        return {"cleared": True}


def _moment(text: str) -> datetime:
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        raise InvalidArgument("at", text, "must be a moment in ISO 8601") from None
