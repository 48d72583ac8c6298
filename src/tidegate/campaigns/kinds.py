"""The kinds of campaigns: what an entry brings to whoever made it."""

from collections.abc import Iterable, Sequence
from importlib import import_module
from typing import Any, Protocol

from tidegate.campaigns.campaign import Campaign, Entry, Outcome, require_kind
from tidegate.database import Transaction
from tidegate.kernel.errors import InvalidSettings, NotFound, TidegateError

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
    module_name, _, name = place.partition(":")
    try:
        found: Any = getattr(import_module(module_name), name)
        kind = found() if isinstance(found, type) else found
    except ModuleNotFoundError as error:
        raise InvalidSettings(
            f"{_VARIABLE}: {place}: no module is called {error.name}. Install it, or name its folder in PYTHONPATH"
        ) from None
    except TidegateError:
        raise
    except Exception as error:  # it is the user's code: whatever is wrong with it is told beside its name
        raise InvalidSettings(f"{_VARIABLE}: {place}: {type(error).__name__}: {error}") from error
    if missing := [each for each in ("kind", "apply") if not hasattr(kind, each)]:
        raise InvalidSettings(f"{_VARIABLE}: {place} is no kind of campaigns: it has no {', '.join(missing)}")
    return kind
