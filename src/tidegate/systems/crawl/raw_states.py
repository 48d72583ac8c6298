"""The states of a kept answer, and the moves between them."""

from enum import StrEnum

from tidegate.core.transitions import Moves, check_moves


class RawState(StrEnum):
    """Where an answer is on its way into its product."""

    PENDING = "pending"  # to be applied: now, after a pause, or after an earlier stage
    PROCESSED = "processed"  # applied, or overtaken by a newer one
    FAILED = "failed"  # could not be applied so often that it became a dead letter


RAW_MOVES: Moves[RawState] = {
    RawState.PENDING: {RawState.PENDING, RawState.PROCESSED, RawState.FAILED},
    RawState.PROCESSED: set(),
    RawState.FAILED: {RawState.PENDING},
}
"""PENDING follows PENDING after a failure; a dead letter becomes PENDING when it is replayed."""

check_moves(RAW_MOVES, RawState, initial=RawState.PENDING)
