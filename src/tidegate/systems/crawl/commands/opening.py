"""What the commands about crawls share."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
import typer

from tidegate.cli.running import load_settings, run

if TYPE_CHECKING:
    from tidegate.settings import Settings
    from tidegate.storage.sql import Database
    from tidegate.systems.crawl.opening import OpenCrawl
    from tidegate.systems.crawl.targets import CrawlOptions

T = TypeVar("T")

JSON = typer.Option(False, "--json", help="Print JSON.")
LINES = typer.Option(False, "--json", help="Print JSON, a line each.")
LIMIT = typer.Option(100, min=1, max=1_000, help="How many at most.")
NAME = typer.Argument(help="What you call this crawl; it has one run at a time.")
URL = typer.Option(help="The marketplace: scheme and host, like https://shop.example.")
KEYWORDS = typer.Option(None, "--keyword", "-k", help="What to search for; may be given several times.")
SITE = typer.Option("marketplace", help="How its pages are read: marketplace, or a site of your own (crawl.sites).")
PAGES = typer.Option(100, min=1, max=10_000, help="How many pages of each search are read at most.")
IGNORE_ROBOTS = typer.Option(
    False, "--ignore-robots", help="Ask for pages although robots.txt forbids them, and do not heed its Crawl-delay."
)


def options_of(
    name: str, url: str, keywords: list[str] | None, site: str, pages: int, *, ignore_robots: bool
) -> CrawlOptions:
    """What was typed, checked before anything is opened."""
    from tidegate.systems.crawl.targets import CrawlOptions, require_crawl_name

    require_crawl_name(name)
    if not keywords:
        raise typer.BadParameter("name at least one --keyword")
    wanted = list(dict.fromkeys(keyword.strip() for keyword in keywords))
    return CrawlOptions(url=url, keywords=wanted, site=site, pages=pages, ignore_robots=ignore_robots)


def ask(question: Callable[[OpenCrawl], Awaitable[T]]) -> T:
    """What this installation answers, or does."""
    return run(_ask(load_settings(), question))


def look(question: Callable[[Database], Awaitable[T]]) -> T:
    """What stands in the database; the server need not be there."""
    return run(_look(load_settings(), question))


def print_json(value: Any) -> None:
    """One line."""
    typer.echo(msgspec.json.encode(value))


async def _ask(settings: Settings, question: Callable[[OpenCrawl], Awaitable[T]]) -> T:
    from tidegate.systems.crawl.opening import open_crawl

    async with open_crawl(settings) as crawl:
        return await question(crawl)


async def _look(settings: Settings, question: Callable[[Database], Awaitable[T]]) -> T:
    from tidegate.connections import open_database

    async with open_database(settings) as database:
        return await question(database)
