"""`tidegate snapshots dead`: refreshes that failed permanently."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import typer

from tidegate.cli.running import load_settings, run
from tidegate.core.errors import NotFound
from tidegate.systems.snapshots.commands.text import opened

if TYPE_CHECKING:
    from tidegate.primitives.coalescer import Outcome
    from tidegate.settings import Settings
    from tidegate.systems.snapshots.dead_letters import RefreshDeadLetter

dead = typer.Typer(help="Refreshes that failed permanently: list, show, replay, drop.", no_args_is_help=True)

_LETTER = typer.Argument(help="The id of a dead letter, as `list` shows it.")
_JSON = typer.Option(False, "--json", help="Print JSON.")


@dead.command("list")
def list_(
    *,
    after: str | None = typer.Option(None, help="Only dead letters after this id."),
    limit: int = typer.Option(50, min=1, max=500, help="Maximum number."),
    as_json: bool = typer.Option(False, "--json", help="Print one line of JSON for each."),
) -> None:
    """List refreshes that failed permanently, the oldest first."""
    from tidegate.systems.snapshots.commands.text import letter_as_json, letter_line

    letters = run(_list(load_settings(), after, limit))
    for letter in letters:
        typer.echo(letter_as_json(letter) if as_json else letter_line(letter))
    if as_json:
        return
    if not letters:
        typer.echo("no dead letters" if after is None else f"no dead letters after {after}")
    elif len(letters) == limit:
        typer.echo(f"More: tidegate snapshots dead list --after {letters[-1].id}")


@dead.command()
def show(letter: str = _LETTER, *, as_json: bool = typer.Option(False, "--json", help="Print it on one line.")) -> None:
    """Show a dead letter with its event, as JSON."""
    from tidegate.systems.snapshots.commands.text import letter_as_json

    encoded = letter_as_json(run(_show(load_settings(), letter)))
    typer.echo(encoded if as_json else msgspec.json.format(encoded, indent=2))


@dead.command()
def replay(letter: str = _LETTER, *, as_json: bool = _JSON) -> None:
    """Request the refresh of a dead letter again, with a new version.

    The dead letter is deleted, unless a refresh of the subject is already queued or running: then it stays.
    """
    from tidegate.primitives.coalescer import AlreadyProcessing
    from tidegate.systems.snapshots.commands.text import outcome_name

    outcome = run(_replay(load_settings(), letter))
    if as_json:
        typer.echo(msgspec.json.encode({"id": letter, "outcome": outcome_name(outcome), "version": outcome.version}))
    else:
        stays = "; the dead letter stays" if isinstance(outcome, AlreadyProcessing) else ""
        typer.echo(f"{letter}: {outcome_name(outcome).replace('_', ' ')}, version {outcome.version}{stays}")


@dead.command()
def drop(letter: str = _LETTER, *, as_json: bool = _JSON) -> None:
    """Delete a dead letter."""
    run(_drop(load_settings(), letter))
    typer.echo(msgspec.json.encode({"id": letter, "outcome": "dropped"}) if as_json else f"{letter}: dropped")


async def _list(settings: Settings, after: str | None, limit: int) -> list[RefreshDeadLetter]:
    async with opened(settings) as snapshots:
        return await snapshots.dead.list(after=after, limit=limit)


async def _show(settings: Settings, letter: str) -> RefreshDeadLetter:
    async with opened(settings) as snapshots:
        return await snapshots.dead.get(letter)


async def _replay(settings: Settings, letter: str) -> Outcome:
    async with opened(settings) as snapshots:
        return await snapshots.dead.replay(letter)


async def _drop(settings: Settings, letter: str) -> None:
    async with opened(settings) as snapshots:
        if not await snapshots.dead.drop(letter):
            raise NotFound("dead letter", letter)
