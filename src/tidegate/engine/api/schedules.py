"""`/v1/schedules`: cron expressions that start runs."""

from collections.abc import Sequence
from typing import Annotated, Any

import msgspec
from litestar import Response
from litestar.handlers import HTTPRouteHandler
from msgspec import Meta

from tidegate.core.ids import new_id
from tidegate.engine.api.run_details import Id, Limit, Selected, SourceName, SubjectText, read_subject
from tidegate.engine.collection import Collection
from tidegate.engine.schedules.firings import LONGEST_KEY, Firing
from tidegate.engine.schedules.store import Schedule
from tidegate.http.dispatch import RequestInput
from tidegate.http.problems import ProblemType
from tidegate.http.routes import route

TAG = "schedules"
_KEY = "^[ -z~]+$"
"""Printable ASCII characters."""


class NewSchedule(Selected, frozen=True, kw_only=True):
    """A schedule to add: the subject, the due times and the options of its runs."""

    login: SubjectText
    source: SourceName | None = None
    """The source to collect from. Default: the setting `collect.source`. The source determines the form of subjects."""
    cron: Annotated[str, Meta(max_length=100, examples=["0 3 * * *"], extra_json_schema={"format": "cron"})]
    """Minute, hour, day of month, month, day of week."""
    timezone: Annotated[
        str, Meta(max_length=64, examples=["UTC", "Europe/Berlin"], extra_json_schema={"format": "time-zone"})
    ] = "UTC"
    """The time zone of the cron expression."""
    include: (
        Annotated[list[Annotated[str, Meta(extra_json_schema={"format": "kind-of-jobs"})]], Meta(min_length=1)] | None
    ) = None
    """The kinds to collect. Default: the settings of the source."""
    since: Annotated[str, Meta(extra_json_schema={"anyOf": [{"format": "date"}, {"format": "date-time"}]})] | None = (
        None
    )
    """Skip items that did not change after this date or time (ISO 8601)."""
    full: bool = False
    """Read everything again in each run, so that all deletions are detected."""

    @property
    def options(self) -> dict[str, Any]:
        """Only the options of the request."""
        asked = {"full": self.full or None, "since": self.since, "include": self.include}
        return {**self.selection, **{name: value for name, value in asked.items() if value is not None}}


class NewFiring(RequestInput, frozen=True, kw_only=True):
    """A request to start a run of a schedule now."""

    key: Annotated[str, Meta(min_length=1, max_length=LONGEST_KEY, pattern=_KEY, examples=["order-4711"])] | None = None
    """Idempotency key: a repeated request with the same key starts no further run. Default: each request is new."""


class ScheduleFilter(RequestInput, frozen=True, kw_only=True):
    """Filter and page size of the list."""

    login: SubjectText | None = None
    """Only schedules of this subject."""
    source: SourceName | None = None
    """Only schedules of this source, which also decides the form of `login`. Default: schedules of all sources; `login`
    has the form of the setting `collect.source`."""
    after: Annotated[int, Meta(ge=0, le=2**63 - 1)] = 0
    """Only schedules after this id: the last id of the previous page."""
    limit: Limit = 100


class SchedulePage(msgspec.Struct, frozen=True, kw_only=True):
    """A page of schedules, ordered by id."""

    schedules: list[Schedule]


class ScheduleRoutes:
    """The handlers of the routes under `/v1/schedules`."""

    def __init__(self, collection: Collection) -> None:
        self._collection = collection

    def routes(self) -> Sequence[HTTPRouteHandler]:
        """The routes of schedules."""
        located = {"Location": "The address of the schedule."}
        return [
            route("GET", "/v1/schedules", self.list_schedules, TAG),
            route("POST", "/v1/schedules", self.add_schedule, TAG, status=201, headers=located),
            route("GET", "/v1/schedules/{schedule_id}", self.show_schedule, TAG),
            route("DELETE", "/v1/schedules/{schedule_id}", self.remove_schedule, TAG),
            route("POST", "/v1/schedules/{schedule_id}/pause", self.pause_schedule, TAG),
            route("POST", "/v1/schedules/{schedule_id}/resume", self.resume_schedule, TAG),
            route(
                "POST",
                "/v1/schedules/{schedule_id}/trigger",
                self.trigger_schedule,
                TAG,
                problems=(ProblemType.CONFLICT, ProblemType.NO_CREDENTIAL),
            ),
        ]

    async def list_schedules(self, query: ScheduleFilter) -> SchedulePage:
        """List schedules with their next due time and the result of the last one."""
        login = None
        if query.login is not None:
            login = read_subject(self._collection.cell(query.source).plugin, query.login).login
        found = await self._collection.schedules.list_schedules(
            login, source=query.source, after=query.after, limit=query.limit
        )
        return SchedulePage(schedules=found)

    async def add_schedule(self, body: NewSchedule) -> Response[Schedule]:
        """Add a schedule that starts a run for a subject at each due time.

        If a schedule with the same subject, cron expression and time zone exists, its options are replaced.
        """
        cell = self._collection.cell(body.source)
        subject = read_subject(cell.plugin, body.login, body.options)
        [added] = await cell.schedules.add(cell.plugin.name, [subject], cron=body.cron, timezone=body.timezone)
        return Response(added, headers={"Location": f"/v1/schedules/{added.id}"})

    async def show_schedule(self, schedule_id: Id) -> Schedule:
        """Show one schedule with its next due time."""
        return await self._collection.schedules.show(schedule_id)

    async def remove_schedule(self, schedule_id: Id) -> Schedule:
        """Delete a schedule. A run that it started is not affected."""
        return await self._collection.schedules.remove(schedule_id)

    async def pause_schedule(self, schedule_id: Id) -> Schedule:
        """Pause a schedule: it starts no runs until it is resumed."""
        return await self._collection.schedules.pause(schedule_id)

    async def resume_schedule(self, schedule_id: Id) -> Schedule:
        """Resume a schedule at its next due time. Due times that passed during the pause are skipped."""
        return await self._collection.schedules.resume(schedule_id)

    async def trigger_schedule(self, schedule_id: Id, body: NewFiring = NewFiring()) -> Firing:  # noqa: B008 - it is frozen
        """Start a run of a schedule now.

        A key starts at most one run; a repeated request returns the first result. If the subject has an active run,
        the firing is skipped, and the key can be used again after that run has ended. A paused schedule starts nothing.
        """
        return await self._collection.schedules.trigger(schedule_id, body.key or new_id())
