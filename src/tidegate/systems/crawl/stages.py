"""The kinds of pages of a crawl, the order in which they are applied to a product, and the states of stored answers."""

from collections.abc import Sequence
from enum import StrEnum

from tidegate.core.transitions import Moves, check_moves

SEARCH = "search"
"""The kind of jobs that find products; not a stage, because it is no part of a product."""


class Stage(StrEnum):
    """A part of a product; also the kind of the jobs that fetch it."""

    MINI_SHOP = "mini_shop"
    DETAIL = "detail"
    OPTION = "option"


class PageKind(StrEnum):
    """The kind of a stored answer: a search page, or a part of a product. Also the kind of its job."""

    SEARCH = SEARCH
    MINI_SHOP = Stage.MINI_SHOP
    DETAIL = Stage.DETAIL
    OPTION = Stage.OPTION


STAGES = tuple(Stage)
"""The order in which stages are applied to a product, whatever the order of arrival."""
_STAGES = {stage.value: stage for stage in STAGES}
_PLACES = {stage: place for place, stage in enumerate(STAGES)}
_EARLIER = {stage: STAGES[:place] for place, stage in enumerate(STAGES)}


def stage_of(kind: str) -> Stage | None:
    """The stage that jobs of this kind fetch; None for searches."""
    return _STAGES.get(kind)


def place_of(stage: Stage) -> int:
    """The position of a stage, starting at 0."""
    return _PLACES[stage]


def earlier(stage: Stage) -> Sequence[Stage]:
    """The stages before a stage."""
    return _EARLIER[stage]


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
