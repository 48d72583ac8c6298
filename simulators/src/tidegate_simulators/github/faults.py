"""What goes wrong on purpose: a share of the calls, or the next ones of a kind."""

from collections.abc import Iterable
from dataclasses import dataclass

from tidegate_simulators.draws import draw, fraction
from tidegate_simulators.errors import InvalidArgument
from tidegate_simulators.github.calls import Call
from tidegate_simulators.github.config import FaultKind, FaultRule
from tidegate_simulators.github.routes import ROUTES
from tidegate_simulators.validation import require_positive


@dataclass
class Injection:
    """The next `times` calls that fit fail in one way."""

    kind: FaultKind
    times: int = 1
    route: str | None = None
    contains: str | None = None
    """Only calls with a path and query that contain this."""


class Faults:
    """Decides which call fails, and how. The same calls in the same order fail in the same way."""

    def __init__(self, seed: int, rules: Iterable[FaultRule] = ()) -> None:
        self._seed, self._drawn = seed, 0
        self._rules: tuple[FaultRule, ...] = ()
        self._injections: list[Injection] = []
        self.set_rules(rules)

    def set_rules(self, rules: Iterable[FaultRule]) -> None:
        """Replace the shares of calls that fail."""
        rules = tuple(rules)
        for rule in rules:
            _require_route(rule.route)
        self._rules = rules

    def inject(self, kind: FaultKind, *, times: int = 1, route: str | None = None, contains: str | None = None) -> None:
        """Let the next calls that fit fail."""
        require_positive("times", times)
        _require_route(route)
        self._injections.append(Injection(kind, times, route, contains))

    def clear(self) -> None:
        """Nothing goes wrong any more."""
        self._rules, self._injections = (), []

    def choose(self, call: Call) -> FaultKind | None:
        """How this call fails; None if it does not."""
        for injection in self._injections:
            if injection.route in (None, call.match.route) and (injection.contains or "") in call.url:
                injection.times -= 1
                if not injection.times:
                    self._injections.remove(injection)
                return injection.kind
        for rule in self._rules:
            if rule.route in (None, call.match.route) and self._happens(rule.rate):
                return rule.kind
        return None

    def _happens(self, rate: float) -> bool:
        self._drawn += 1
        return fraction(draw(self._seed, self._drawn, 101)) < rate


def _require_route(route: str | None) -> None:
    if route is not None and route not in ROUTES:
        raise InvalidArgument("route", route, f"must be one of {', '.join(sorted(ROUTES))}")
