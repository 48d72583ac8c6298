"""Schedules for whoever wants to change them, without anything that collects."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from tidegate.connections import open_context
from tidegate.engine.schedules.store import Schedules
from tidegate.settings import Settings
from tidegate.systems.github import GithubSource
from tidegate.systems.github.settings import GithubSettings


@asynccontextmanager
async def open_schedules(settings: Settings) -> AsyncGenerator[Schedules]:
    """The door to schedules, for the length of a block; no token is needed."""
    github = GithubSource(settings.section(GithubSettings).api_url, settings.section(GithubSettings).kinds)
    async with open_context(settings) as parts:
        yield Schedules(parts.database, {github.name: github}, parts.timers.wakeup)
