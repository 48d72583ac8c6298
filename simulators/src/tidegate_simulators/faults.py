"""What goes wrong on purpose: a share of the calls, all calls of some kind, or the next ones."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from hashlib import blake2b
from typing import Generic, Protocol, TypeVar

from tidegate_simulators.errors import InvalidArgument
from tidegate_simulators.validation import require_at_most, require_positive

_MOST_INJECTIONS = 10_000

Kind = TypeVar("Kind")
Place = TypeVar("Place")
Kind_co = TypeVar("Kind_co", covariant=True)
Place_co = TypeVar("Place_co", covariant=True)


RuleT = TypeVar("RuleT")


def parse_rules(
    text: str, make: Callable[[str, float, str | None], RuleT], *, place: str, known: Iterable[str]
) -> tuple[RuleT, ...]:
    """Parse rules such as `502=0.01,reset@repo.issues=0.05`: kind, optionally a place, and the share of calls.

    `make` gets kind, share and place. Raises `InvalidArgument` with the form that is expected and the `known` kinds.
    """
    return tuple(_parse_rule(part.strip(), make, place, known) for part in text.split(",") if part.strip())


def _parse_rule(text: str, make: Callable[[str, float, str | None], RuleT], place: str, known: Iterable[str]) -> RuleT:
    what, _, rate = text.partition("=")
    kind, _, where = what.strip().partition("@")
    try:
        return make(kind, float(rate), where or None)
    except InvalidArgument:
        raise
    except ValueError:
        form = f"write kind=share or kind@{place}=share; kinds: {', '.join(known)}"
        raise InvalidArgument("faults", text, form) from None


class Rule(Protocol[Kind_co, Place_co]):
    """A share of the calls that fail in one way."""

    @property
    def kind(self) -> Kind_co:
        """The kind of fault."""
        ...

    @property
    def rate(self) -> float:
        """How many of them, from 0 to 1."""
        ...

    @property
    def place(self) -> Place_co | None:
        """Only calls of this kind; None: all calls."""
        ...


@dataclass
class _Injection(Generic[Kind, Place]):
    """The next `times` calls that fit fail in one way."""

    kind: Kind
    times: int
    place: Place | None


class Faults(Generic[Kind, Place]):
    """Decides which call fails, and how. The same calls in the same order fail in the same way."""

    def __init__(self, seed: int, rules: Iterable[Rule[Kind, Place]] = ()) -> None:
        self._seed, self._drawn = seed, 0
        self._rules = tuple(rules)
        self._injections: list[_Injection[Kind, Place]] = []

    def set_rules(self, rules: Iterable[Rule[Kind, Place]]) -> None:
        """Replace the shares of calls that fail."""
        self._rules = tuple(rules)

    def inject_at(self, place: Place | None, kind: Kind, times: int = 1) -> None:
        """Let the next calls fail, or the next ones of one kind."""
        require_positive("times", times)
        require_at_most("injections", len(self._injections) + 1, _MOST_INJECTIONS)
        self._injections.append(_Injection(kind, times, place))

    def clear(self) -> None:
        """Nothing goes wrong any more."""
        self._rules, self._injections = (), []

    @property
    def are_none(self) -> bool:
        """Whether nothing can go wrong at present."""
        return not self._rules and not self._injections

    def choose(self, *places: Place | None) -> Kind | None:
        """How a call fails that belongs to these places; None if it does not."""
        for injection in self._injections:
            if injection.place is None or injection.place in places:
                injection.times -= 1
                if not injection.times:
                    self._injections.remove(injection)
                return injection.kind
        for rule in self._rules:
            if (rule.place is None or rule.place in places) and self.chance() < rule.rate:
                return rule.kind
        return None

    def chance(self) -> float:
        """The next number in [0, 1)."""
        self._drawn += 1
        bits = blake2b(b"%d fault %d" % (self._seed, self._drawn), digest_size=8).digest()
        return (int.from_bytes(bits, "little") >> 11) / (1 << 53)
