"""The next due time of a cron expression in its time zone.

An hour that a change of the clocks leaves out or repeats: an expression that names an hour is due once on such a day
(one that was left out right after the change), one that says "every hour" or "every minute" goes on by the clock.
"""

from datetime import UTC, datetime, tzinfo
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from tidegate.core.errors import InvalidArgument

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
