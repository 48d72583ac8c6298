"""`/v1/schedules`: runs that begin by the clock."""

from collections.abc import Sequence
from typing import Annotated, Any

import msgspec
from litestar import Response
from litestar.handlers import HTTPRouteHandler
from msgspec import Meta

from tidegate.core.errors import InvalidArgument
from tidegate.core.ids import new_id
from tidegate.engine.api.run_details import Id, Limit
from tidegate.engine.api.subjects import Selected, SubjectText, read_subject
from tidegate.engine.collection import Collection
from tidegate.engine.schedules.firings import LONGEST_KEY, Firing
from tidegate.engine.schedules.store import Schedule
from tidegate.http.dispatch import Given
from tidegate.http.problems import ProblemType, Trouble
from tidegate.http.routes import route

TAG = "schedules"
_KEY = "^[ -z~]+$"
"""Printable, and nothing that keys are divided by."""


class NewSchedule(Selected, frozen=True, kw_only=True):
    """For which subject runs begin, when, and what of them is collected."""

    login: SubjectText
    source: Annotated[str, Meta(min_length=1, max_length=40, extra_json_schema={"format": "source-name"})] | None = None
    """The source to collect from, by default that of the setting `collect.source`; it says what subjects there are."""
    cron: Annotated[str, Meta(max_length=100, examples=["0 3 * * *"], extra_json_schema={"format": "cron"})]
    """Minute, hour, day of month, month, day of week."""
    timezone: Annotated[
        str, Meta(max_length=64, examples=["UTC", "Europe/Berlin"], extra_json_schema={"format": "time-zone"})
    ] = "UTC"
    """By whose clocks."""
    include: (
        Annotated[list[Annotated[str, Meta(extra_json_schema={"format": "kind-of-jobs"})]], Meta(min_length=1)] | None
    ) = None
    """What to collect; as the settings say, where it is left out."""
    since: Annotated[str, Meta(extra_json_schema={"anyOf": [{"format": "date"}, {"format": "date-time"}]})] | None = (
        None
    )
    """Leave out what did not change after this date or time (ISO 8601)."""
    full: bool = False
    """Read everything again each time, so that deletions are noticed everywhere."""

    @property
    def options(self) -> dict[str, Any]:
        """Only what was asked for."""
        asked = {"full": self.full or None, "since": self.since, "include": self.include}
        return {**self.selection, **{name: value for name, value in asked.items() if value is not None}}


class NewFiring(Given, frozen=True, kw_only=True):
    """Which firing is asked for."""

    key: Annotated[str, Meta(min_length=1, max_length=LONGEST_KEY, pattern=_KEY, examples=["order-4711"])] | None = None
    """Its name: the same again begins nothing more. Where it is left out, each request is a firing of its own."""


class ScheduleFilter(Given, frozen=True, kw_only=True):
    """Which schedules, and how many."""

    login: SubjectText | None = None
    after: Annotated[int, Meta(ge=0, le=2**63 - 1)] = 0
    """Only those with a greater number: the last one of the page before."""
    limit: Limit = 100


class SchedulePage(msgspec.Struct, frozen=True, kw_only=True):
    """Schedules in the order of their numbers."""

    schedules: list[Schedule]


class SchedulesDesk:
    """The handlers."""

    def __init__(self, collection: Collection) -> None:
        self._collection = collection

    def routes(self) -> Sequence[HTTPRouteHandler]:
        """What can be done with schedules."""
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
        """List schedules: when they are due next, and what their last due time brought."""
        login = None if query.login is None else read_subject(query.login).id
        found = await self._collection.schedules.list_schedules(login, after=query.after, limit=query.limit)
        return SchedulePage(schedules=found)

    async def add_schedule(self, body: NewSchedule) -> Response[Schedule]:
        """Begin a run for a subject whenever the time has come.

        The same user, cron and time zone again change the options of the schedule that is there, and nothing else.
        """
        cell = self._collection.cell(body.source)
        try:
            subject = cell.plugin.subject(body.login, body.options)
        except InvalidArgument as error:
            raise Trouble(ProblemType.INVALID, str(error), field="login") from None
        [added] = await cell.schedules.add(cell.plugin.name, [subject], cron=body.cron, timezone=body.timezone)
        return Response(added, headers={"Location": f"/v1/schedules/{added.id}"})

    async def show_schedule(self, schedule_id: Id) -> Schedule:
        """Show one schedule."""
        return await self._collection.schedules.show(schedule_id)

    async def remove_schedule(self, schedule_id: Id) -> Schedule:
        """Forget a schedule. A run that it began goes on."""
        return await self._collection.schedules.remove(schedule_id)

    async def pause_schedule(self, schedule_id: Id) -> Schedule:
        """Let a schedule begin nothing until it is resumed."""
        return await self._collection.schedules.pause(schedule_id)

    async def resume_schedule(self, schedule_id: Id) -> Schedule:
        """Go on with the next due time; what came due meanwhile is left out."""
        return await self._collection.schedules.resume(schedule_id)

    async def trigger_schedule(self, schedule_id: Id, body: NewFiring = NewFiring()) -> Firing:  # noqa: B008 - it is frozen
        """Begin a run of a schedule now.

        The same key begins one run at most, whoever asks and how often: asked again, what became of it is told. Where
        the user has an active run, the firing is skipped, and the key may be fired again when that run has ended. A
        schedule that is paused begins nothing.
        """
        return await self._collection.schedules.trigger(schedule_id, body.key or new_id())
