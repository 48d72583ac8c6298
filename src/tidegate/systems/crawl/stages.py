"""The kinds of pages of a crawl, and the order in which they become a product."""

from collections.abc import Sequence
from enum import StrEnum

SEARCH = "search"
"""The kind of jobs that find products; not a stage: it makes no part of one."""


class Stage(StrEnum):
    """A part of a product, and the kind of the jobs that fetch it."""

    MINI_SHOP = "mini_shop"
    DETAIL = "detail"
    OPTION = "option"


class PageKind(StrEnum):
    """What a kept answer is: a page of a search, or a part of a product. The kind of the job that fetched it."""

    SEARCH = SEARCH
    MINI_SHOP = Stage.MINI_SHOP
    DETAIL = Stage.DETAIL
    OPTION = Stage.OPTION


STAGES = tuple(Stage)
"""In the order in which they are applied to a product, in whatever order they arrive."""
_STAGES = {stage.value: stage for stage in STAGES}
_PLACES = {stage: place for place, stage in enumerate(STAGES)}
_EARLIER = {stage: STAGES[:place] for place, stage in enumerate(STAGES)}


def stage_of(kind: str) -> Stage | None:
    """The stage that jobs of this kind fetch; None if they fetch no part of a product."""
    return _STAGES.get(kind)


def place_of(stage: Stage) -> int:
    """From 0: how many stages come before it."""
    return _PLACES[stage]


def earlier(stage: Stage) -> Sequence[Stage]:
    """The stages that come before it."""
    return _EARLIER[stage]
