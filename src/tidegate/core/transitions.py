"""State machines as tables: docs, SQL conditions and tests derive from the same mapping."""

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from enum import StrEnum
from typing import TypeVar

from tidegate.core.errors import ContractBroken

State = TypeVar("State", bound=StrEnum)
Moves = Mapping[State, AbstractSet[State]]


def sources_of(moves: Moves[State], target: State) -> list[State]:
    """The states from which `target` may be entered, for the WHERE clause of updates that enter it."""
    return [state for state, targets in moves.items() if target in targets]


def check_moves(moves: Moves[State], states: type[State], *, initial: State) -> None:
    """Raise `ContractBroken` unless every state has a row and can be reached from `initial`."""
    if missing := set(states) - set(moves):
        raise ContractBroken(f"{states.__name__}: no row for {sorted(missing)}")
    reached, frontier = {initial}, [initial]
    while frontier:
        for target in moves[frontier.pop()] - reached:
            reached.add(target)
            frontier.append(target)
    if lost := set(states) - reached:
        raise ContractBroken(f"{states.__name__}: {sorted(lost)} cannot be reached from {initial}")
