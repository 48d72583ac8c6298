"""Declares GitHub to the application."""

import os
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from tidegate.system import Command, Context, OpenSystem, System

if TYPE_CHECKING:
    from tidegate.core.findings import Finding
    from tidegate.settings import Settings


class GithubSystem(System):
    """Declares the collection of GitHub data, and its statistics."""

    name = "github"
    requires = ("collection",)
    sections = {"github": "tidegate.systems.github.settings:GithubSettings"}
    sources = {"github": "tidegate.systems.github.plugin:GithubPlugin"}
    kind_names = "tidegate.systems.github.kinds:NAMES"
    commands = {
        "stats": Command("tidegate.systems.github.commands:stats", "Show the statistics of a user, or of all users.")
    }
    kept_tables = {
        "statistics_items": "one row for each document",
        "statistics_users": "one row for each user",
    }

    def checks(self, settings: "Settings") -> Sequence[Callable[[], object]]:
        """Check the token of the environment."""
        from tidegate.systems.github.plugin import GithubPlugin
        from tidegate.systems.github.settings import VARIABLE

        return [lambda: GithubPlugin(settings).check(os.environ.get(VARIABLE))]

    def doctor_checks(self) -> "Mapping[str, Callable[[Settings], AsyncIterator[Finding]]]":
        """Checks of the credentials and of the connection to GitHub."""
        from tidegate.systems.github import doctor

        return {"credentials": doctor.credentials, "github": doctor.upstream}

    @asynccontextmanager
    async def open(self, context: Context) -> AsyncGenerator[OpenSystem]:
        """Open GitHub for the length of a block; without a credential, jobs wait for one."""
        from tidegate.engine.collection import Collection
        from tidegate.engine.credentials.memory_tokens import environment_token
        from tidegate.systems.github.opening import OpenGithub
        from tidegate.systems.github.plugin import GithubPlugin

        plugin = GithubPlugin(context.settings)
        opening = context.get(Collection).open_source(plugin, token=environment_token(plugin.name))
        async with opening as cell:
            opened = OpenGithub(cell)
            context.share(opened.statistics)
            yield opened
