"""Admin endpoints: report, change the data, inject faults."""

from itertools import islice
from typing import TYPE_CHECKING, Any

import msgspec

from tidegate_simulators.admin import AdminEndpoints, Query
from tidegate_simulators.errors import InvalidArgument
from tidegate_simulators.marketplace.config import FaultKind, Politeness, RobotsSettings, Route, parse_faults
from tidegate_simulators.validation import require_whole

if TYPE_CHECKING:
    from tidegate_simulators.marketplace.simulator import MarketplaceSimulator

_USUAL_PART = 1_000
_LARGEST_PART = 10_000


class _Injection(msgspec.Struct, forbid_unknown_fields=True):
    kind: FaultKind | None = None
    times: int = 1
    route: Route | None = None
    rules: str | None = None
    """Instead of one injection: the shares of calls that fail from now on."""


class _Steps(msgspec.Struct, forbid_unknown_fields=True):
    steps: int = 1


class _Robots(msgspec.Struct, forbid_unknown_fields=True):
    robots: RobotsSettings
    host: int | None = None


class _Ban(msgspec.Struct, forbid_unknown_fields=True):
    identity: str
    host: int | None = None
    for_s: float | None = None


class Admin(AdminEndpoints):
    """Of a marketplace, on each of its hosts."""

    def __init__(self, simulator: "MarketplaceSimulator") -> None:
        self._simulator = simulator
        actions = {
            ("GET", "report"): self._report,
            ("GET", "world"): self._world,
            ("GET", "identities"): self._identities,
            ("GET", "truth"): self._all_truth,
            ("POST", "advance"): self._advance,
            ("POST", "faults"): self._inject,
            ("DELETE", "faults"): self._clear_faults,
            ("POST", "robots"): self._set_robots,
            ("POST", "politeness"): self._set_politeness,
            ("POST", "ban"): self._ban,
            ("POST", "pardon"): self._pardon,
            ("POST", "clear"): self._clear,
        }
        on_one = {
            ("GET", "truth"): self._truth,
            ("GET", "arrivals"): self._arrivals,
            ("POST", "change"): self._change,
            ("POST", "vanish"): self._vanish,
        }
        super().__init__(actions, on_one)

    def _report(self, _query: Query, _body: bytes) -> Any:
        return self._simulator.report()

    def _world(self, _query: Query, _body: bytes) -> Any:
        sim = self._simulator
        return {
            "shape": sim.config.world,
            "step": sim.world.step,
            "products": sim.world.living,
            "keywords": sim.world.keywords,
            "urls": sim.urls,
            "limits": sim.config.limits,
        }

    def _identities(self, _query: Query, _body: bytes) -> Any:
        return self._simulator.identities

    def _all_truth(self, query: Query, _body: bytes) -> Any:
        """A part of all products: from `offset`, `limit` of them."""
        offset, limit = _count(query, "offset", 0, 1 << 30), _count(query, "limit", _USUAL_PART, _LARGEST_PART)
        sim = self._simulator
        part = [sim.documents.truth(one) for one in islice(sim.world.products(), offset, offset + limit)]
        return {"products": part, "total": sim.world.living, "step": sim.world.step}

    def _truth(self, product: int, _query: Query) -> Any:
        return self._simulator.truth(product)

    def _arrivals(self, host: int, _query: Query) -> Any:
        """When each call came, in µs since the start."""
        return {"host": host, "at_us": self._simulator.arrivals(host)}

    def _advance(self, _query: Query, body: bytes) -> Any:
        self._simulator.world.advance(msgspec.json.decode(body or b"{}", type=_Steps).steps)
        return {"step": self._simulator.world.step}

    def _change(self, product: int, _query: Query) -> Any:
        self._simulator.world.change(product)
        return {"step": self._simulator.world.step}

    def _vanish(self, product: int, _query: Query) -> Any:
        self._simulator.world.vanish(product)
        return {"step": self._simulator.world.step}

    def _inject(self, _query: Query, body: bytes) -> Any:
        wanted = msgspec.json.decode(body, type=_Injection)
        if wanted.rules is not None:
            self._simulator.faults.set_rules(parse_faults(wanted.rules))
        elif wanted.kind is not None:
            self._simulator.faults.inject_at(wanted.route, wanted.kind, wanted.times)
        else:
            raise InvalidArgument("kind", None, "name a kind, or rules")
        return {"injected": True}

    def _clear_faults(self, _query: Query, _body: bytes) -> Any:
        self._simulator.faults.clear()
        return {"cleared": True}

    def _set_robots(self, _query: Query, body: bytes) -> Any:
        wanted = msgspec.json.decode(body, type=_Robots)
        self._simulator.set_robots(wanted.robots, wanted.host)
        return {"set": True}

    def _set_politeness(self, _query: Query, body: bytes) -> Any:
        self._simulator.set_politeness(msgspec.json.decode(body, type=Politeness))
        return {"set": True}

    def _ban(self, _query: Query, body: bytes) -> Any:
        wanted = msgspec.json.decode(body, type=_Ban)
        self._simulator.ban(wanted.identity, host=wanted.host, for_s=wanted.for_s)
        return {"banned": True}

    def _pardon(self, _query: Query, _body: bytes) -> Any:
        """Forget all strikes, and end all bans."""
        self._simulator.pardon()
        return {"pardoned": True}

    def _clear(self, _query: Query, _body: bytes) -> Any:
        """Reset the counts; windows of limits, strikes, bans and pauses are kept."""
        self._simulator.clear()
        return {"cleared": True}


def _count(query: Query, name: str, usual: int, most: int) -> int:
    text = query.get(name, str(usual))
    if not (text.isascii() and text.isdigit()):
        raise InvalidArgument(name, text, "must be a number")
    require_whole(name, int(text), least=0, most=most)
    return int(text)
