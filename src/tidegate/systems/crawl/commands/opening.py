"""Options and helpers shared by the crawl commands."""

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
LINES = typer.Option(False, "--json", help="Print JSON, one object per line.")
LIMIT = typer.Option(100, min=1, max=1_000, help="Maximum number of rows.")
NAME = typer.Argument(help="Name of the crawl. It has at most one active run.")
URL = typer.Option(help="The marketplace: scheme and host, like https://shop.example.")
KEYWORDS = typer.Option(None, "--keyword", "-k", help="Search keyword; may be given several times.")
SITE = typer.Option("marketplace", help="Site class that reads its pages: marketplace, or one from crawl.sites.")
PAGES = typer.Option(100, min=1, max=10_000, help="Maximum number of pages read per search.")
IGNORE_ROBOTS = typer.Option(
    False, "--ignore-robots", help="Request pages that robots.txt forbids, and ignore its Crawl-delay."
)


def options_of(
    name: str, url: str, keywords: list[str] | None, site: str, pages: int, *, ignore_robots: bool
) -> CrawlOptions:
    """The options of a crawl, validated before any server is opened."""
    from tidegate.systems.crawl.targets import CrawlOptions, require_crawl_name

    require_crawl_name(name)
    if not keywords:
        raise typer.BadParameter("give at least one --keyword")
    wanted = list(dict.fromkeys(keyword.strip() for keyword in keywords))
    return CrawlOptions(url=url, keywords=wanted, site=site, pages=pages, ignore_robots=ignore_robots)


def ask(question: Callable[[OpenCrawl], Awaitable[T]]) -> T:
    """Open the crawl, call `question` with it, and return the result."""
    return run(_ask(load_settings(), question))


def query(question: Callable[[Database], Awaitable[T]]) -> T:
    """Call `question` with the database and return the result; Valkey is not needed."""
    return run(_query(load_settings(), question))


def print_json(value: Any) -> None:
    """Print a value as one line of JSON."""
    typer.echo(msgspec.json.encode(value))


async def _ask(settings: Settings, question: Callable[[OpenCrawl], Awaitable[T]]) -> T:
    from tidegate.systems.crawl.opening import open_crawl

    async with open_crawl(settings) as crawl:
        return await question(crawl)


async def _query(settings: Settings, question: Callable[[Database], Awaitable[T]]) -> T:
    from tidegate.connections import open_database

    async with open_database(settings) as database:
        return await question(database)
