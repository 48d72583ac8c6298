"""`tidegate links`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import typer

from tidegate.cli import load_settings, run

if TYPE_CHECKING:
    from link_checker.links import LinkList
    from tidegate import Settings

app = typer.Typer(no_args_is_help=True, help="Links, and whether they answer.")


@app.command()
def add(url: str = typer.Argument(help="The link to check.")) -> None:
    """Have a link checked by a process that works."""
    run(_add(load_settings(), url))
    typer.echo(f"{url} will be checked")


@app.command("list")
def list_() -> None:
    """List links as JSON."""
    typer.echo(msgspec.json.encode(run(_list(load_settings()))))


async def _add(settings: Settings, url: str) -> None:
    import tidegate
    from link_checker.links import NewLink, OpenLinkChecker

    async with tidegate.open(settings, ["link_checker"]) as application:
        opened = application.find(OpenLinkChecker)
        assert opened is not None
        await opened.add_link(NewLink(url=url))


async def _list(settings: Settings) -> LinkList:
    import tidegate
    from link_checker.links import OpenLinkChecker

    async with tidegate.open(settings, ["link_checker"]) as application:
        opened = application.find(OpenLinkChecker)
        assert opened is not None
        return await opened.list_links()
