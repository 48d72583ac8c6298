"""The kinds of campaigns: what an entry brings to whoever made it."""

from collections.abc import Iterable, Sequence
from typing import Protocol

from tidegate.core.errors import InvalidSettings, NotFound
from tidegate.runtime.loading import load_part
from tidegate.storage.sql import Transaction
from tidegate.systems.campaigns.campaign import Campaign, Entry, Outcome, require_kind

_VARIABLE = "TIDEGATE_CAMPAIGNS__KINDS"


class KindUnknown(NotFound):
    """This process cannot work on campaigns of this kind; another may."""


class CampaignKind(Protocol):
    """Decides entries, in the transaction that writes what became of them: so its effects happen once, or not at all.

    It has no effect but through `tx`, as it may be run again. It is asked for no more entries than the stock has left,
    and for each user once. What it raises is taken for the fault of an entry: that one is found, and tried again later.
    """

    @property
    def kind(self) -> str:
        """What campaigns of this kind call it."""
        ...

    def apply(self, tx: Transaction, campaign: Campaign, entries: Sequence[Entry]) -> Sequence[Outcome]:
        """What becomes of each of these entries, in their order: issued or refused."""
        ...


class Kinds:
    """Those that a process can work on, by their names."""

    def __init__(self, kinds: Iterable[CampaignKind]) -> None:
        kinds = list(kinds)
        self._kinds = {require_kind(each.kind): each for each in kinds}
        if len(self._kinds) != len(kinds):
            raise InvalidSettings(f"two kinds of campaigns have one name: {', '.join(each.kind for each in kinds)}")

    def get(self, kind: str) -> CampaignKind:
        """One of them, or raise `KindUnknown`."""
        found = self._kinds.get(kind)
        if found is None:
            raise KindUnknown("kind of campaigns", kind, known=self._kinds)
        return found

    @property
    def names(self) -> list[str]:
        """What they are called."""
        return sorted(self._kinds)


def load_kind(place: str) -> CampaignKind:
    """The kind at `module:name`; where that is a class, what it makes without arguments."""
    return load_part(
        place,
        variable=_VARIABLE,
        what="kind of campaigns",
        needs=("kind", "apply"),
        is_made=lambda found: not isinstance(found, type),
    )
