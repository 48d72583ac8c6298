"""What an account did lately, as its public timeline shows it: 300 events, 30 days, and late."""

from dataclasses import dataclass
from functools import cached_property

from tidegate.simulators.draws import draw, pick
from tidegate.simulators.github.draws import DAY_S, moments
from tidegate.simulators.github.repository import Account

MOST_EVENTS = 300
OLDEST_S = 30 * DAY_S
_KINDS = ("PushEvent", "PushEvent", "IssuesEvent", "IssueCommentEvent", "PullRequestEvent", "WatchEvent", "CreateEvent")


@dataclass(frozen=True)
class Event:
    """Something that somebody did in a repository."""

    id: int
    kind: str
    at: int
    bits: int
    repository_id: int | None = None
    """None: one of the account's own, drawn."""


class EventLog:
    """Generated events of the five weeks before the epoch, and those that were added since."""

    def __init__(self, account: Account, count: int | None, epoch: int) -> None:
        self._account, self._epoch = account, epoch
        key = draw(account.key, 31)
        self._count = (0 if account.is_operator else key % 400) if count is None else count
        self._key = key
        self.version = 0

    @cached_property
    def _events(self) -> list[Event]:
        first = self._account.id << 20
        times = moments(self._key, self._count, self._epoch - 35 * DAY_S, self._epoch)
        return [self._event(first + i, at) for i, at in enumerate(times)]

    def _event(self, number: int, at: int) -> Event:
        bits = draw(self._key, number)
        return Event(number, pick(_KINDS, bits), at, bits)

    def add(self, kind: str, at: int, repository_id: int) -> Event:
        """One more."""
        number = self._events[-1].id + 1 if self._events else self._account.id << 20
        event = Event(number, kind, at, draw(self._key, number), repository_id)
        self._events.append(event)
        self.version += 1
        return event

    def visible(self, now: int, late_s: tuple[int, int]) -> list[Event]:
        """The newest first: those that are not too old, not too many, and have shown up by now."""
        least, most = late_s
        spread = most - least + 1
        shown = [e for e in self._events if e.at + least + e.bits % spread <= now and e.at > now - OLDEST_S]
        return shown[: -MOST_EVENTS - 1 : -1]
