"""What goes wrong on purpose: a share of the calls, all calls for a character, or the next ones."""

from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import blake2b

from tidegate.kernel.arguments import require_at_most, require_positive
from tidegate.simulators.game.config import FaultKind, FaultRule, require_subject

_MOST_INJECTIONS = 10_000


@dataclass
class _Injection:
    """The next `times` calls that fit fail in one way."""

    kind: FaultKind
    times: int
    subject: int | None


class Faults:
    """Decides which call fails, and how. The same calls in the same order fail in the same way."""

    def __init__(self, seed: int, rules: Iterable[FaultRule] = ()) -> None:
        self._seed, self._drawn = seed, 0
        self._rules = tuple(rules)
        self._injections: list[_Injection] = []

    def set_rules(self, rules: Iterable[FaultRule]) -> None:
        """Replace the shares of calls that fail."""
        self._rules = tuple(rules)

    def inject(self, kind: FaultKind, *, times: int = 1, subject: int | None = None) -> None:
        """Let the next calls fail, or the next ones for one character."""
        require_positive("times", times)
        require_subject(subject)
        require_at_most("injections", len(self._injections) + 1, _MOST_INJECTIONS)
        self._injections.append(_Injection(kind, times, subject))

    def clear(self) -> None:
        """Nothing goes wrong any more."""
        self._rules, self._injections = (), []

    @property
    def are_none(self) -> bool:
        """Whether nothing can go wrong at present."""
        return not self._rules and not self._injections

    def choose(self, subject: int | None) -> FaultKind | None:
        """How a call for this character (None: for no one) fails; None if it does not."""
        for injection in self._injections:
            if injection.subject in (None, subject):
                injection.times -= 1
                if not injection.times:
                    self._injections.remove(injection)
                return injection.kind
        for rule in self._rules:
            if rule.subject in (None, subject) and self.chance() < rule.rate:
                return rule.kind
        return None

    def chance(self) -> float:
        """The next number in [0, 1)."""
        self._drawn += 1
        bits = blake2b(b"%d fault %d" % (self._seed, self._drawn), digest_size=8).digest()
        return (int.from_bytes(bits, "little") >> 11) / (1 << 53)
