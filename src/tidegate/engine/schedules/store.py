"""Stores schedules, and computes the next due time of a cron expression in its time zone.

A change of a schedule wakes the leader; its timekeeper fires them.

An hour that a change of the clocks leaves out or repeats: an expression that names an hour is due once on such a day
(one that was left out right after the change), one that says "every hour" or "every minute" goes on by the clock.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import UTC, datetime, tzinfo
from typing import Any, Protocol
from zoneinfo import ZoneInfo

import msgspec
from cronsim import CronSim, CronSimError
from sqlalchemy import delete, select, update

from tidegate.core.arguments import require_name, require_not_negative, require_positive
from tidegate.core.errors import ContractBroken, InvalidArgument, NotFound, Unavailable
from tidegate.core.telemetry.logs import get_logger
from tidegate.engine.schedules.firings import Firing, collection_schedules, require_key
from tidegate.engine.source import Source, Subject
from tidegate.storage.sql import Database, Transaction

LONGEST_CRON = 100
LONGEST_TIMEZONE = 64
_FIELDS = "must be five fields: minute, hour, day of month, month, day of week, like 0 3 * * *"


def next_time(cron: str, timezone: str, *, after: datetime) -> datetime:
    """Return the first due time after `after`, in UTC. Raises `InvalidArgument` if there is none or it is invalid."""
    times = _times(cron, after.astimezone(_zone(timezone)))
    try:
        for moment in times:
            # In an hour that occurs twice, the same time of day may have been due the first time.
            if (due := moment.astimezone(UTC)) > after:
                return due
    except OverflowError:
        pass
    raise InvalidArgument("cron", cron, "there is no such day within fifty years")


def require_cron(cron: str) -> str:
    """Return a valid cron expression with single spaces. Raises `InvalidArgument` for others."""
    plain = " ".join(cron.split())
    if len(plain) > LONGEST_CRON:
        raise InvalidArgument("cron", plain[:32] + "…", f"must have at most {LONGEST_CRON} characters")
    _times(plain, datetime(2026, 1, 1, tzinfo=UTC))
    return plain


def require_timezone(timezone: str) -> str:
    """Return a time zone that this machine knows. Raises `InvalidArgument` for others."""
    if not timezone or len(timezone) > LONGEST_TIMEZONE:
        raise InvalidArgument("timezone", timezone[:32], f"must have from 1 to {LONGEST_TIMEZONE} characters")
    _zone(timezone)
    return timezone


def _times(cron: str, after: datetime) -> CronSim:
    if len(cron.split()) != 5:  # the library accepts a sixth field for seconds
        raise InvalidArgument("cron", cron, _FIELDS)
    try:
        return CronSim(cron, after)
    except CronSimError as error:
        raise InvalidArgument("cron", cron, f"{str(error).lower()}; {_FIELDS}") from None
    except (AssertionError, TypeError, ValueError):  # the library raises these for some invalid expressions
        raise InvalidArgument("cron", cron, _FIELDS) from None


def _zone(name: str) -> tzinfo:
    if name == "UTC":
        return UTC  # available without a time zone database
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        reason = "is no time zone that this machine knows; they are named like Europe/Berlin (package: tzdata)"
        raise InvalidArgument("timezone", name, reason) from None


log = get_logger(__name__)

_c = collection_schedules.c
_LONGEST_NAME = 200
_AT_ONCE = 200
_KEY = ("source", "user_id", "cron", "timezone")


class ScheduleNotifier(Protocol):
    """Wakes the leader, which fires due schedules."""

    async def notify(self) -> object:
        """Wake the process. Raises `Unavailable` if that is not possible."""
        ...


class Schedule(msgspec.Struct, frozen=True, kw_only=True):
    """The row of a schedule."""

    id: int
    source: str
    user_id: str
    login: str
    options: dict[str, Any]
    cron: str
    timezone: str
    next_at: datetime | None
    """The next due time; None while it is paused."""
    created_at: datetime
    last_due_at: datetime | None
    """The last due time."""
    last_run_id: int | None
    """The last run that it started."""
    last_error: str | None
    """Why its last due time started no run."""

    @property
    def subject(self) -> Subject:
        """The subject of its runs."""
        return Subject(user_id=self.user_id, login=self.login, options=self.options)


class Schedules:
    """Adds, lists, changes and fires schedules. A change is committed before the leader is woken.

    `fire` is `Triggers.fire`; without it, schedules cannot be fired.
    """

    def __init__(
        self,
        database: Database,
        sources: Mapping[str, Source],
        wakeup: ScheduleNotifier,
        fire: Callable[[int, str], Awaitable[Firing]] | None = None,
    ) -> None:
        self._database, self._sources, self._wakeup, self._fire = database, sources, wakeup, fire

    async def add(
        self, source: str, subjects: Sequence[Subject], *, cron: str, timezone: str = "UTC"
    ) -> list[Schedule]:
        """Add a schedule for each of `subjects` with the due times of `cron` in `timezone`.

        If a schedule with the same subject, cron expression and time zone exists, its options are replaced. Raises
        `InvalidArgument` for a schedule that could never start a run.
        """
        cron, timezone = require_cron(cron), require_timezone(timezone)
        if source not in self._sources:
            raise InvalidArgument("source", source, f"must be one of {', '.join(sorted(self._sources))}")
        for subject in subjects:
            _require_short("user_id", subject.user_id)
            _require_short("login", subject.login)
            if not self._sources[source].first_jobs(subject):
                raise InvalidArgument("subject", subject.login, "the source has no jobs for it")
        next_at = next_time(cron, timezone, after=self._database.clock.now())
        common = {"source": source, "cron": cron, "timezone": timezone, "next_at": next_at}
        # Sorted, so that concurrent calls insert in the same order and one waits for the other.
        wanted = sorted({subject.user_id: subject for subject in subjects}.items())
        added: list[Schedule] = []
        for start in range(0, len(wanted), _AT_ONCE):
            part = [subject for _, subject in wanted[start : start + _AT_ONCE]]
            added += await self._database.transaction(_write, common, part)
        await self._wake()
        return added

    async def list_schedules(
        self, login: str | None = None, *, source: str | None = None, after: int = 0, limit: int | None = None
    ) -> list[Schedule]:
        """Return at most `limit` schedules with ids above `after`, of one subject or source or of all."""
        require_not_negative("after", after)
        if limit is not None:
            require_positive("limit", limit)
        return await self._database.read(listed, login, after, limit, source)

    async def show(self, schedule_id: int) -> Schedule:
        """Return a schedule. Raises `NotFound`."""
        return await self._database.read(get, schedule_id)

    async def remove(self, schedule_id: int) -> Schedule:
        """Delete a schedule and return it. A run that it started is not affected. Raises `NotFound`."""
        return await self._database.transaction(_remove, schedule_id)

    async def pause(self, schedule_id: int) -> Schedule:
        """Pause a schedule: it starts no runs until it is resumed. Raises `NotFound`."""
        return await self._database.transaction(_plan, schedule_id, None)

    async def resume(self, schedule_id: int) -> Schedule:
        """Resume at the next due time from now. Due times during the pause are skipped. Raises `NotFound`."""
        schedule = await self.show(schedule_id)
        if schedule.next_at is not None:
            return schedule
        next_at = next_time(schedule.cron, schedule.timezone, after=self._database.clock.now())
        resumed = await self._database.transaction(_plan, schedule_id, next_at)
        await self._wake()
        return resumed

    async def trigger(self, schedule_id: int, firing_key: str) -> Firing:
        """Start a run now. A `firing_key` starts at most one run; a repeated call returns the first result.

        If the user has an active run, the firing is SKIPPED, and the key can be used again after that run has ended.
        Raises `NotFound`, `NoCredential`, and `ScheduleInactive` if the schedule is paused; the key can be used again.
        """
        require_key(firing_key)
        if self._fire is None:
            raise ContractBroken("schedules cannot be fired here: they were opened only to be changed")
        return await self._fire(schedule_id, firing_key)

    async def _wake(self) -> None:
        """Wake the leader. If that fails, the leader finds the change within 15 minutes."""
        try:
            await self._wakeup.notify()
        except Unavailable as error:
            log.warning("schedule.announce_failed", error=str(error))


def listed(
    tx: Transaction, login: str | None = None, after: int = 0, limit: int | None = None, source: str | None = None
) -> list[Schedule]:
    """Return schedules of one subject or source, or all, ordered by id."""
    found = select(collection_schedules).where(_c.id > after).order_by(_c.id).limit(limit)
    wanted = [_c[name] == value for name, value in (("login", login), ("source", source)) if value is not None]
    return [to_schedule(row) for row in tx.execute(found.where(*wanted))]


def get(tx: Transaction, schedule_id: int) -> Schedule:
    """Return a schedule. Raises `NotFound`."""
    row = tx.execute(select(collection_schedules).where(_c.id == schedule_id)).one_or_none()
    if row is None:
        raise NotFound("schedule", schedule_id)
    return to_schedule(row)


def to_schedule(row: Any) -> Schedule:
    """Convert a row of the table."""
    return Schedule(**row._mapping)


def _write(tx: Transaction, common: Mapping[str, Any], subjects: Sequence[Subject]) -> list[Schedule]:
    """Insert or update one schedule per subject, and return them."""
    rows = [
        {
            **common,
            "user_id": subject.user_id,
            "login": subject.login,
            "options": dict(subject.options),
            "created_at": tx.now,
        }
        for subject in subjects
    ]
    tx.insert_many(collection_schedules, rows, skip_existing=True)
    written: list[Schedule] = []
    for row in rows:
        same = [_c[name] == row[name] for name in _KEY]
        # An existing schedule keeps its due time, and stays paused if it is.
        changed = {name: row[name] for name in ("login", "options")}
        tx.execute(update(collection_schedules).where(*same).values(changed))
        written.append(to_schedule(tx.execute(select(collection_schedules).where(*same)).one()))
    return written


def _remove(tx: Transaction, schedule_id: int) -> Schedule:
    removed = get(tx, schedule_id)
    tx.execute(delete(collection_schedules).where(_c.id == schedule_id))
    return removed


def _plan(tx: Transaction, schedule_id: int, next_at: datetime | None) -> Schedule:
    tx.execute(update(collection_schedules).where(_c.id == schedule_id).values(next_at=next_at))
    return get(tx, schedule_id)


def _require_short(name: str, value: str) -> None:
    require_name(name, value)
    if len(value) > _LONGEST_NAME:
        raise InvalidArgument(name, value[:32] + "…", f"must have at most {_LONGEST_NAME} characters")
