"""The open GitHub source of a process, with the routes of `/v1/statistics` and `/v1/users/{login}/statistics`."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from typing import Annotated

from litestar.handlers import HTTPRouteHandler
from msgspec import Meta

from tidegate.core.errors import InvalidArgument, NotFound
from tidegate.engine.collection import open_source
from tidegate.engine.source_cell import SourceCell
from tidegate.engine.system import OpenSource
from tidegate.http.dispatch import RequestInput
from tidegate.http.problems import ProblemType, RequestFailed
from tidegate.http.routes import route
from tidegate.settings import Settings
from tidegate.system import Api, HttpContext
from tidegate.systems.github.settings import NAME
from tidegate.systems.github.statistics import GlobalStatistics, Statistics, UserStatistics
from tidegate.systems.github.subjects import LONGEST, parse_login

TAG = "statistics"
_LOGIN = "[A-Za-z0-9][A-Za-z0-9-]*(_[A-Za-z0-9]+)?"


def _form(prefix: str) -> dict[str, object]:
    return {"pattern": f"^{prefix.replace('.', '[.]')}{_LOGIN}$", "maxLength": len(prefix) + LONGEST}


Login = Annotated[
    str,
    Meta(
        max_length=200,
        description="A login, with or without an @ before it, or the address of a profile.",
        # Documentation only. The handler checks the value, so that the error is a sentence and not a pattern.
        extra_json_schema={"anyOf": [_form(""), _form("@"), _form("https://github.com/")]},
    ),
]


class StatisticsPeriod(RequestInput, frozen=True, kw_only=True):
    """Query parameters of `/v1/statistics`."""

    days: Annotated[int, Meta(ge=1, le=366)] = 30
    """Number of days up to today, including today."""


class StatisticsRoutes:
    """Handlers of the statistics routes."""

    def __init__(self, statistics: Statistics) -> None:
        self._statistics = statistics

    def routes(self) -> Sequence[HTTPRouteHandler]:
        """The routes of statistics."""
        return [
            route("GET", "/v1/users/{login}/statistics", self.user_statistics, TAG),
            route("GET", "/v1/statistics", self.overall_statistics, TAG),
        ]

    async def user_statistics(self, login: Login) -> UserStatistics:
        """Return the statistics of a user: repositories, stars, languages, commits, merges, streaks, collaborators.

        404 until a run of the user has completed.
        """
        known = _read_login(login)
        found = await self._statistics.of_user(known)
        if found is None:
            raise NotFound("user with statistics", known)
        return found

    async def overall_statistics(self, query: StatisticsPeriod) -> GlobalStatistics:
        """Return statistics of all users: totals, and the most active users and repositories by day, week and month."""
        return await self._statistics.overall(days=query.days)


def _read_login(text: str) -> str:
    try:
        return parse_login(text)
    except InvalidArgument as error:
        raise RequestFailed(ProblemType.INVALID, str(error), field="login") from None


class OpenGithub(OpenSource):
    """The open GitHub source: its cell, and the routes of its statistics."""

    def __init__(self, cell: SourceCell) -> None:
        super().__init__(cell)
        self.cell, self.statistics = cell, cell.parts.get(Statistics)

    def api(self, http: HttpContext) -> Api:
        """The HTTP routes that show statistics of users."""
        del http

        return Api(routes=StatisticsRoutes(self.statistics).routes())


@asynccontextmanager
async def open_github(
    settings: Settings, *, token: str | None = None, needs_credential: bool = True
) -> AsyncGenerator[SourceCell]:
    """Open only the collection from GitHub, for the length of a block; see `open_source`."""
    async with open_source(settings, NAME, token=token, needs_credential=needs_credential) as collection:
        yield collection.cell(NAME)
