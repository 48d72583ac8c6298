"""What an account did lately, as its public timeline shows it: 300 events, 30 days, and late."""

from dataclasses import dataclass
from functools import cached_property

from tidegate_simulators.draws import draw, pick
from tidegate_simulators.github.draws import DAY_S, moments
from tidegate_simulators.github.repository import Account

MOST_EVENTS = 300
OLDEST_S = 30 * DAY_S
_KINDS = ("PushEvent", "PushEvent", "IssuesEvent", "IssueCommentEvent", "PullRequestEvent", "WatchEvent", "CreateEvent")


@dataclass(frozen=True)
class Event:
    """An action of a user in a repository."""

    id: int
    kind: str
    at: int
    bits: int
    repository_id: int | None = None
    """None: one of the account's own, drawn."""


class EventLog:
    """Generated events of the five weeks before the epoch, and those that were added since.

    Which generated events the timeline shows is decided as of the epoch and never changes: a copy of a world without
    mutations stays equal to it however long the collection takes. Added events appear and expire with the clock.
    """

    def __init__(self, account: Account, count: int | None, epoch: int) -> None:
        self._account, self._epoch = account, epoch
        key = draw(account.key, 31)
        self._count = (0 if account.is_operator else key % 400) if count is None else count
        self._key = key
        self._added: list[Event] = []
        self.version = 0

    @cached_property
    def _generated(self) -> list[Event]:
        first = self._account.id << 20
        times = moments(self._key, self._count, self._epoch - 35 * DAY_S, self._epoch)
        return [self._event(first + i, at) for i, at in enumerate(times)]

    def _event(self, number: int, at: int) -> Event:
        bits = draw(self._key, number)
        return Event(number, pick(_KINDS, bits), at, bits)

    def add(self, kind: str, at: int, repository_id: int) -> Event:
        """Add an event that happened at `at`."""
        number = (self._account.id << 20) + self._count + len(self._added)
        event = Event(number, kind, at, draw(self._key, number), repository_id)
        self._added.append(event)
        self.version += 1
        return event

    def visible(self, now: int, late_s: tuple[int, int]) -> list[Event]:
        """The newest first: at most 300 events that are not too old and have shown up by now."""
        shown = [*_shown(self._generated, self._epoch, late_s), *_shown(self._added, now, late_s)]
        return shown[: -MOST_EVENTS - 1 : -1]


def _shown(events: list[Event], now: int, late_s: tuple[int, int]) -> list[Event]:
    least, most = late_s
    spread = most - least + 1
    return [e for e in events if e.at + least + e.bits % spread <= now and e.at > now - OLDEST_S]
