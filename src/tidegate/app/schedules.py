"""Schedules for whoever wants to change them, without anything that collects."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from tidegate.app.parts import open_parts
from tidegate.app.settings import Settings
from tidegate.engine.schedules import Schedules
from tidegate.systems.github import GithubSource


@asynccontextmanager
async def open_schedules(settings: Settings) -> AsyncGenerator[Schedules]:
    """The door to schedules, for the length of a block; no token is needed."""
    github = GithubSource(settings.github.api_url, settings.github.include)
    async with open_parts(settings) as parts:
        yield Schedules(parts.database, {github.name: github}, parts.timers.doorbell)
