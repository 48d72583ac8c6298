"""`tidegate crawl identities`: manage identities, and show their health at hosts."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import typer

from tidegate.cli.wording import clock, counted
from tidegate.core.errors import InvalidArgument
from tidegate.systems.crawl.commands.opening import JSON, ask, print_json, query

if TYPE_CHECKING:
    from tidegate.systems.crawl.identities import Identity, IdentityRegistry

app = typer.Typer(no_args_is_help=True, help="Identities: User-Agents and their headers.")

_NAMES = typer.Argument(help="The names of identities, as `list` shows them.")


@app.command()
def add(
    name: str | None = typer.Argument(None, help="Name of the identity; its headers are never shown."),
    *,
    header: list[str] = typer.Option(None, "--header", "-H", help="'User-Agent: ...'; may be given several times."),
    file: Path | None = typer.Option(
        None, help='Several at once, as JSON: {"name": {"User-Agent": "...", "Cookie": "..."}}; - is standard input.'
    ),
    as_json: bool = JSON,
) -> None:
    """Add identities, or replace the headers of existing ones. Headers are stored encrypted.

    If no identity is stored, the built-in one is used, which names this crawler in its User-Agent.
    """
    wanted = _given(name, header or [], file)

    async def add_all(identities: IdentityRegistry) -> list[Identity]:
        return [await identities.add(one, headers) for one, headers in wanted.items()]

    added = ask(lambda crawl: add_all(crawl.identities))
    _tell(added, as_json=as_json)


@app.command("list")
def list_(*, as_json: bool = JSON) -> None:
    """Show the identities, with their health at hosts that refused them."""
    from tidegate.systems.crawl.identities import listed

    _tell(list(query(lambda database: database.read(listed))), as_json=as_json)


@app.command()
def remove(names: list[str] = _NAMES, *, as_json: bool = JSON) -> None:
    """Delete identities. Calls in progress finish."""
    _change("remove", "removed", names, as_json=as_json)


@app.command()
def disable(names: list[str] = _NAMES, *, as_json: bool = JSON) -> None:
    """Disable identities: they are kept, but not used."""
    _change("disable", "disabled", names, as_json=as_json)


@app.command()
def enable(names: list[str] = _NAMES, *, as_json: bool = JSON) -> None:
    """Enable identities, so that they are used again."""
    _change("enable", "enabled", names, as_json=as_json)


def _change(what: str, done: str, names: list[str], *, as_json: bool) -> None:
    wanted = list(dict.fromkeys(names))

    async def change_all(identities: IdentityRegistry) -> None:
        change = {"remove": identities.remove, "disable": identities.disable, "enable": identities.enable}[what]
        for name in wanted:
            await identities.get(name)  # nothing is changed unless all exist
        for name in wanted:
            await change(name)

    ask(lambda crawl: change_all(crawl.identities))
    if as_json:
        print_json({done: wanted})
    else:
        typer.echo(f"{done} {', '.join(wanted)}")


def _given(name: str | None, headers: list[str], file: Path | None) -> dict[str, dict[str, str]]:
    if (name is None) == (file is None):
        raise typer.BadParameter("give a name and at least one --header, or a --file with identities")
    if file is not None:
        return _read(file)
    split = [header.partition(":") for header in headers]
    if not split or not all(colon for _, colon, _ in split):
        raise typer.BadParameter("give at least one --header 'Name: value'; User-Agent is required")
    assert name is not None
    return {name: {key.strip(): value.strip() for key, _, value in split}}


def _read(file: Path) -> dict[str, dict[str, str]]:
    try:
        text = typer.get_text_stream("stdin").read() if str(file) == "-" else file.read_text()
        return msgspec.json.decode(text, type=dict[str, dict[str, str]])
    except (OSError, UnicodeDecodeError) as error:
        raise typer.BadParameter(f"{file} cannot be read: {error}") from None
    except msgspec.DecodeError as error:  # the error text has a position, but no content
        raise InvalidArgument("file", str(file), f"must be JSON, headers by name: {error}") from None


def _tell(identities: list[Identity], *, as_json: bool) -> None:
    from rich.markup import escape
    from rich.table import Table

    from tidegate.cli.tables import print_table

    if as_json:
        print_json({"identities": identities})
        return
    table, now = Table("identity", "state", "hosts that refused it", box=None, pad_edge=False), datetime.now(UTC)
    for one in identities:
        state = "built in" if one.built_in else "in use" if one.enabled else "disabled"
        table.add_row(escape(one.name), state, escape("; ".join(_standing(one, now)) or "none"))
    print_table(table)


def _standing(one: Identity, now: datetime) -> list[str]:
    lines: list[str] = []
    for health in one.health:
        rests = health.resting_until is not None and health.resting_until > now
        until = f", rests until {clock(health.resting_until, now)}" if rests and health.resting_until else ""
        lines.append(f"{health.host}: {health.score:.0%}, {counted(health.refusals, 'refusal')}{until}")
    return lines
