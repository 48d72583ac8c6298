"""States of stored answers, and their transitions."""

from enum import StrEnum

from tidegate.core.transitions import Moves, check_moves


class RawState(StrEnum):
    """State of a stored answer."""

    PENDING = "pending"  # to be applied: now, after a pause, or after an earlier stage
    PROCESSED = "processed"  # applied, or superseded by a newer one
    FAILED = "failed"  # a dead letter: could not be applied


RAW_MOVES: Moves[RawState] = {
    RawState.PENDING: {RawState.PENDING, RawState.PROCESSED, RawState.FAILED},
    RawState.PROCESSED: set(),
    RawState.FAILED: {RawState.PENDING},
}
"""PENDING follows PENDING after a failure; a replayed dead letter becomes PENDING."""

check_moves(RAW_MOVES, RawState, initial=RawState.PENDING)
