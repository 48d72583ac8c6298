"""Declares the link checker to Tidegate."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from tidegate import Command, Context, OpenSystem, System


class LinkCheckerSystem(System):
    """Checks whether links answer."""

    name = "link_checker"
    sections = {"link_checker": "link_checker.settings:LinkCheckerSettings"}
    commands = {"links": Command("link_checker.commands:app", "Add links, and see which of them answer.")}
    metrics = "link_checker.metrics"
    tables = "link_checker.tables:metadata"
    kept_tables = {"link_checker_links": "one row for each link that was added"}

    @asynccontextmanager
    async def open(self, context: Context) -> AsyncGenerator[OpenSystem]:
        """The link checker, for the length of a block."""
        from link_checker.links import OpenLinkChecker

        yield OpenLinkChecker(context)
