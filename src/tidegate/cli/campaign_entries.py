"""The part of `tidegate campaign` that is about entries."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
import typer

from tidegate.cli.campaign_opening import CAMPAIGN, JSON, ask
from tidegate.cli.wording import counted, number
from tidegate.core.errors import InvalidArgument, NotFound
from tidegate.systems.campaigns.campaign import LARGEST_PAGE, Answer, Entered, Result

if TYPE_CHECKING:
    from tidegate.systems.campaigns.campaigns import Campaigns
    from tidegate.systems.campaigns.dead_letters import Letter

_USER = typer.Argument(help="The id of a user.")
_LETTERS = typer.Argument(None, help="Ids of dead letters, as `dead` shows them.")
_ALL = typer.Option(False, "--all", help="Every letter that is there now.")
_LINES = typer.Option(False, "--json", help="Print JSON, a line for each.")
_LIMIT = typer.Option(50, min=1, max=LARGEST_PAGE, help="So many at most.")
_CANNOT_ENTER = 3


def add_to(app: typer.Typer) -> None:
    """Make these commands of `app`."""
    for command in (enter, result, entries, dead, replay, discard):
        app.command()(command)


def enter(
    campaign: str = CAMPAIGN,
    user: str = _USER,
    *,
    key: str | None = typer.Option(None, help="The idempotency key."),
    data: str | None = typer.Option(None, help="JSON for the processor of the campaign's kind."),
    as_json: bool = JSON,
) -> None:
    """Enter a user. Exit 3 where the answer is SOLD_OUT, NOT_OPEN or BUSY."""
    brought = _read(data)
    entered = ask(lambda campaigns: campaigns.enter(campaign, user, key, brought))
    typer.echo(msgspec.json.encode(entered) if as_json else f"{user}: {_worded(entered)}")
    if entered.answer not in (Answer.ACCEPTED, Answer.DUPLICATE):
        raise typer.Exit(_CANNOT_ENTER)


def result(campaign: str = CAMPAIGN, user: str = _USER, *, as_json: bool = JSON) -> None:
    """Show what became of a user's entry."""
    found = ask(lambda campaigns: campaigns.result(campaign, user))
    typer.echo(msgspec.json.encode(found) if as_json else f"{user}: {_told(found)}")


def entries(
    campaign: str = CAMPAIGN,
    *,
    after: int | None = typer.Option(None, min=0, help="Only entries behind this number."),
    limit: int = _LIMIT,
    as_json: bool = _LINES,
) -> None:
    """List entries that are decided, by number."""
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    behind = None if after is None else (after + 1, "")
    found = ask(lambda campaigns: campaigns.entries(campaign, after=behind, limit=limit))
    if as_json:
        for each in found:
            typer.echo(msgspec.json.encode(each))
        return
    if not found:
        typer.echo("no entries are decided" if after is None else f"no entries are decided behind number {after}")
        return
    table = Table("number", "user", "outcome", "code", "points", box=None, pad_edge=False)
    for each in found:
        outcome = each.outcome
        points = number(outcome.points) if outcome.points else ""
        table.add_row(str(each.number), escape(each.user), outcome.verdict.value, outcome.code or "", points)
    Console(soft_wrap=True).print(table)
    if len(found) == limit:
        typer.echo(f"More: tidegate campaign entries {campaign} --after {found[-1].number}")


def dead(
    campaign: str = CAMPAIGN,
    *,
    after: str | None = typer.Option(None, help="Only letters behind this one."),
    limit: int = _LIMIT,
    as_json: bool = _LINES,
) -> None:
    """List entries that nobody could decide, and why. Each keeps its place of the stock until it is discarded."""
    page = ask(lambda campaigns: campaigns.dead(campaign, after=after, limit=limit))
    for letter in page.letters:
        typer.echo(msgspec.json.encode(letter) if as_json else _line(letter))
    if as_json:
        return
    if not page.letters:
        typer.echo("no dead letters" if after is None else f"no dead letters behind {after}")
    elif page.next_after is not None:
        typer.echo(f"More: tidegate campaign dead {campaign} --after {page.next_after}")


def replay(
    campaign: str = CAMPAIGN, letters: list[str] | None = _LETTERS, *, every: bool = _ALL, as_json: bool = JSON
) -> None:
    """Have dead letters decided after all, under their old numbers."""
    _settle(campaign, letters or [], "replayed", lambda campaigns: campaigns.replay, every=every, as_json=as_json)


def discard(
    campaign: str = CAMPAIGN, letters: list[str] | None = _LETTERS, *, every: bool = _ALL, as_json: bool = JSON
) -> None:
    """Give dead letters up for good. Their places are free, and their users may enter again."""
    _settle(campaign, letters or [], "discarded", lambda campaigns: campaigns.discard, every=every, as_json=as_json)


def _settle(
    campaign: str,
    letters: Sequence[str],
    done: str,
    way: Callable[[Campaigns], Callable[[str, Sequence[str]], Any]],
    *,
    every: bool,
    as_json: bool,
) -> None:
    if bool(letters) == every:
        raise InvalidArgument("letters", "none" if not letters else "some", "name letters, or say --all")

    async def settle(campaigns: Campaigns) -> int:
        named = await campaigns.dead_ids(campaign) if every else letters
        return await way(campaigns)(campaign, named) if named else 0

    count: int = ask(settle)
    if count == 0 and not every:
        raise NotFound("dead letter", letters[0] if len(letters) == 1 else ", ".join(letters))
    typer.echo(msgspec.json.encode({done: count}) if as_json else f"{counted(count, 'letter')} {done}")


def _read(data: str | None) -> Any:
    try:
        return None if data is None else msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeEncodeError) as error:
        raise InvalidArgument("--data", data, f"must be JSON: {error}") from None


def _worded(entered: Entered) -> str:
    if entered.number is not None:
        return f"{entered.answer.value}, number {number(entered.number)}"
    if entered.opens_in_ms is not None:
        return f"{entered.answer.value}, it opens in {number(entered.opens_in_ms / 1000)} s"
    return entered.answer.value


def _told(found: Result) -> str:
    parts = [found.state.value]
    parts += [] if found.number is None else [f"number {number(found.number)}"]
    parts += [] if found.code is None else [f"code {found.code}"]
    parts += [counted(found.points, "point")] if found.points else []
    parts += [] if found.reason is None else [found.reason]
    return ", ".join(parts)


def _line(letter: Letter) -> str:
    whom = "unreadable" if letter.entry is None else f"{letter.entry.user}, number {letter.entry.number}"
    return f"{letter.id}  {whom}: {letter.reason}"
