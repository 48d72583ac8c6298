"""`tidegate campaign`: create, start, stop and show campaigns, enter users, and handle dead letters."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
import typer

from tidegate.cli.running import load_settings, run
from tidegate.cli.wording import clock, counted, number, span
from tidegate.core.errors import InvalidArgument, NotFound
from tidegate.systems.campaigns.model import (
    FIRST_COME,
    LARGEST_PAGE,
    Campaign,
    CampaignPlan,
    CampaignState,
    EntryAnswer,
    EntryReceipt,
    EntryResult,
)

if TYPE_CHECKING:
    from tidegate.settings import Settings
    from tidegate.systems.campaigns.dead_letters import CampaignDeadLetter
    from tidegate.systems.campaigns.model import CampaignStatus
    from tidegate.systems.campaigns.service import Campaigns

T = TypeVar("T")
app = typer.Typer(no_args_is_help=True, help="Campaigns: coupons for the first N users, points for all.")
_TITLE = typer.Option(None, help="Title.")
_STARTS = typer.Option(None, "--starts-at", help="Start (ISO 8601, with time zone).")
_ENDS = typer.Option(None, "--ends-at", help="End (ISO 8601, with time zone).")
_CAMPAIGN = typer.Argument(help="The id of a campaign.")
_JSON = typer.Option(False, "--json", help="Print JSON.")
_USER = typer.Argument(help="The id of a user.")
_LETTERS = typer.Argument(None, help="Ids of dead letters, as `dead` shows them.")
_ALL = typer.Option(False, "--all", help="All present dead letters.")
_LINES = typer.Option(False, "--json", help="Print JSON lines.")
_LIMIT = typer.Option(50, min=1, max=LARGEST_PAGE, help="Largest number of rows.")
_CANNOT_ENTER = 3


@app.command()
def create(
    campaign: str = typer.Argument(help="The id of the new campaign, which is used in addresses."),
    *,
    kind: str = typer.Option(FIRST_COME, help="FIRST_COME, POINTS, or a custom kind."),
    total: int = typer.Option(min=1, help="Expected number of entries; for FIRST_COME also the default stock."),
    stock: int | None = typer.Option(None, min=0, help="Largest number of issued entries."),
    points: int = typer.Option(0, min=0, help="Points per user of a POINTS campaign."),
    title: str | None = _TITLE,
    starts_at: str | None = _STARTS,
    ends_at: str | None = _ENDS,
    as_json: bool = _JSON,
) -> None:
    """Create a campaign. Users cannot enter until it is started."""
    plan = CampaignPlan(
        id=campaign,
        kind=kind,
        total_count=total,
        stock=stock,
        points=points,
        title=title or "",
        starts_at=moment("--starts-at", starts_at),
        ends_at=moment("--ends-at", ends_at),
    )
    _tell(ask(lambda campaigns: campaigns.create(plan)), as_json=as_json)


@app.command()
def alter(
    campaign: str = _CAMPAIGN,
    *,
    total: int | None = typer.Option(None, min=1, help="Expected number of entries."),
    stock: int | None = typer.Option(
        None, min=0, help="Largest number of issued entries; not below the number of issued ones."
    ),
    points: int | None = typer.Option(None, min=0, help="Points per user of a POINTS campaign."),
    title: str | None = _TITLE,
    starts_at: str | None = _STARTS,
    ends_at: str | None = _ENDS,
    as_json: bool = _JSON,
) -> None:
    """Change a campaign, also while it runs. Options that are not given keep their values."""
    from tidegate.systems.campaigns.model import CampaignChange

    given: dict[str, Any] = {
        "total_count": total,
        "stock": stock,
        "points": points,
        "title": title,
        "starts_at": moment("--starts-at", starts_at),
        "ends_at": moment("--ends-at", ends_at),
    }
    changes = {name: value for name, value in given.items() if value is not None}
    if not changes:
        raise InvalidArgument("options", "none", "must name something to change")
    _tell(ask(lambda campaigns: campaigns.alter(campaign, CampaignChange(**changes))), as_json=as_json)


@app.command()
def start(
    campaign: str = _CAMPAIGN, *, starts_at: str | None = _STARTS, ends_at: str | None = _ENDS, as_json: bool = _JSON
) -> None:
    """Let users enter from the start until the end. Safe to repeat."""
    begin, finish = moment("--starts-at", starts_at), moment("--ends-at", ends_at)
    _tell(ask(lambda campaigns: campaigns.start(campaign, begin, finish)), as_json=as_json)


@app.command()
def stop(campaign: str = _CAMPAIGN, *, as_json: bool = _JSON) -> None:
    """Stop a campaign: users cannot enter any more, and accepted entries are still decided. Safe to repeat."""
    _tell(ask(lambda campaigns: campaigns.stop(campaign)), as_json=as_json)


@app.command()
def delete(campaign: str = _CAMPAIGN, *, as_json: bool = _JSON) -> None:
    """Delete a campaign that is over, with its entries and dead letters. Points are kept. This cannot be undone."""
    ask(lambda campaigns: campaigns.delete(campaign))
    typer.echo(msgspec.json.encode({"deleted": campaign}) if as_json else f"{campaign}: deleted")


@app.command("list")
def list_(
    *,
    after: str | None = typer.Option(None, help="Only campaigns after this id."),
    limit: int = typer.Option(100, min=1, max=LARGEST_PAGE, help="Largest number of rows."),
    as_json: bool = typer.Option(False, "--json", help="Print JSON lines."),
) -> None:
    """List campaigns, ordered by id."""
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    found = ask(lambda campaigns: campaigns.page(after=after, limit=limit))
    if as_json:
        for each in found:
            typer.echo(msgspec.json.encode(each))
        return
    if not found:
        typer.echo("There are no campaigns. Create one: tidegate campaign create NAME --total 100")
        return
    table = Table("campaign", "kind", "state", "issued", "stock", box=None, pad_edge=False)
    for each in found:
        table.add_row(escape(each.id), each.kind, state_of(each), number(each.issued), _stock(each))
    Console(soft_wrap=True).print(table)
    if len(found) == limit:
        typer.echo(f"More: tidegate campaign list --after {found[-1].id}")


@app.command()
def status(campaign: str = _CAMPAIGN, *, as_json: bool = _JSON) -> None:
    """Show what a campaign has issued, its undecided entries, and the processes that serve it."""
    found = ask(lambda campaigns: campaigns.status(campaign))
    typer.echo(msgspec.json.encode(found) if as_json else describe(found))


@app.command()
def enter(
    campaign: str = _CAMPAIGN,
    user: str = _USER,
    *,
    key: str | None = typer.Option(None, help="The idempotency key."),
    data: str | None = typer.Option(None, help="JSON for the campaign's kind."),
    as_json: bool = _JSON,
) -> None:
    """Enter a user. Exits with 3 if the answer is SOLD_OUT, NOT_OPEN or BUSY."""
    brought = _read(data)
    entered = ask(lambda campaigns: campaigns.enter(campaign, user, key, brought))
    typer.echo(msgspec.json.encode(entered) if as_json else f"{user}: {_worded(entered)}")
    if entered.answer not in (EntryAnswer.ACCEPTED, EntryAnswer.DUPLICATE):
        raise typer.Exit(_CANNOT_ENTER)


@app.command()
def result(campaign: str = _CAMPAIGN, user: str = _USER, *, as_json: bool = _JSON) -> None:
    """Show the state of a user's entry."""
    found = ask(lambda campaigns: campaigns.result(campaign, user))
    typer.echo(msgspec.json.encode(found) if as_json else f"{user}: {_result_text(found)}")


@app.command()
def entries(
    campaign: str = _CAMPAIGN,
    *,
    after: int | None = typer.Option(None, min=0, help="Only entries after this number."),
    limit: int = _LIMIT,
    as_json: bool = _LINES,
) -> None:
    """List decided entries, ordered by number."""
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
        typer.echo("no entries are decided" if after is None else f"no entries are decided after number {after}")
        return
    table = Table("number", "user", "outcome", "code", "points", box=None, pad_edge=False)
    for each in found:
        outcome = each.outcome
        points = number(outcome.points) if outcome.points else ""
        table.add_row(str(each.number), escape(each.user), outcome.verdict.value, outcome.code or "", points)
    Console(soft_wrap=True).print(table)
    if len(found) == limit:
        typer.echo(f"More: tidegate campaign entries {campaign} --after {found[-1].number}")


@app.command()
def dead(
    campaign: str = _CAMPAIGN,
    *,
    after: str | None = typer.Option(None, help="Only dead letters after this id."),
    limit: int = _LIMIT,
    as_json: bool = _LINES,
) -> None:
    """List entries that could not be decided, and why. Each keeps its share of the stock until it is discarded."""
    page = ask(lambda campaigns: campaigns.dead(campaign, after=after, limit=limit))
    for letter in page.letters:
        typer.echo(msgspec.json.encode(letter) if as_json else _line(letter))
    if as_json:
        return
    if not page.letters:
        typer.echo("no dead letters" if after is None else f"no dead letters after {after}")
    elif page.next_after is not None:
        typer.echo(f"More: tidegate campaign dead {campaign} --after {page.next_after}")


@app.command()
def replay(
    campaign: str = _CAMPAIGN, letters: list[str] | None = _LETTERS, *, every: bool = _ALL, as_json: bool = _JSON
) -> None:
    """Decide dead letters again, under their old numbers."""
    _settle(campaign, letters or [], "replayed", lambda campaigns: campaigns.replay, every=every, as_json=as_json)


@app.command()
def discard(
    campaign: str = _CAMPAIGN, letters: list[str] | None = _LETTERS, *, every: bool = _ALL, as_json: bool = _JSON
) -> None:
    """Delete dead letters. Their share of the stock is free, and their users may enter again."""
    _settle(campaign, letters or [], "discarded", lambda campaigns: campaigns.discard, every=every, as_json=as_json)


def ask(question: Callable[[Campaigns], Awaitable[T]]) -> T:
    """Run a question with the campaigns of this installation."""
    return run(_ask(load_settings(), question))


def moment(option: str, text: str | None) -> datetime | None:
    """Parse the time of an option. Raises `InvalidArgument` if it is not a time with a time zone."""
    if text is None:
        return None
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise InvalidArgument(option, text, "must be a time like 2026-12-24T12:00:00+09:00") from None
    if found.tzinfo is None:
        raise InvalidArgument(option, text, "must say its time zone")
    return found.astimezone(UTC)


async def _ask(settings: Settings, question: Callable[[Campaigns], Awaitable[T]]) -> T:
    async with _opened(settings) as campaigns:
        return await question(campaigns)


@asynccontextmanager
async def _opened(settings: Settings) -> AsyncGenerator[Campaigns]:
    from tidegate.connections import open_database, open_valkey
    from tidegate.systems.campaigns.system import open_campaigns

    async with (
        open_valkey(settings) as valkey,
        open_database(settings) as database,
        open_campaigns(settings, database, valkey) as campaigns,
    ):
        yield campaigns


def describe(found: CampaignStatus) -> str:
    """Format the state of a campaign for people."""
    campaign = found.campaign
    serving = f"{counted(len(found.processes), 'process', 'processes')}, {counted(found.consumers, 'consumer')}"
    idle = "no entries yet" if found.idle_ms is None else f"the last one {span(found.idle_ms / 1000)} ago"
    none = "none; started by the next entry" if not found.depth else "none yet"
    lines = [
        f"{campaign.id}: {campaign.kind}, {state_of(campaign)}",
        f"  issued   {number(campaign.issued)} of {_stock(campaign)}",
        f"  in line  {number(found.depth)}, of which {number(found.pending)} are being decided",
        f"  entered  {number(found.entered)}; {idle}",
        f"  serving  {serving if found.processes else none}",
    ]
    if found.dead:
        lines.append(f"  dead     {number(found.dead)}: tidegate campaign dead {campaign.id}")
    return "\n".join(lines)


def state_of(campaign: Campaign) -> str:
    """Format the state in a few words, with the relevant time."""
    now = datetime.now(UTC)
    if campaign.state is not CampaignState.OPEN:
        return campaign.state.value
    if campaign.starts_at is not None and campaign.starts_at > now:
        return f"starts {clock(campaign.starts_at, now)}"
    if campaign.ends_at is None:
        return "open"
    return (
        f"over since {clock(campaign.ends_at, now)}"
        if campaign.ends_at <= now
        else (f"open until {clock(campaign.ends_at, now)}")
    )


def _stock(campaign: Campaign) -> str:
    return "any number" if campaign.stock is None else number(campaign.stock)


def _tell(found: Campaign, *, as_json: bool) -> None:
    if as_json:
        typer.echo(msgspec.json.encode(found))
    else:
        typer.echo(f"{found.id}: {found.kind}, {state_of(found)}; issued {number(found.issued)} of {_stock(found)}")


def _settle(
    campaign: str,
    letters: Sequence[str],
    done: str,
    way: Callable[[Campaigns], Callable[[str, Sequence[str]], Any]],
    *,
    every: bool,
    as_json: bool,
) -> None:
    """Apply an action to the given dead letters of a campaign, or to `every` one, and print their number."""
    if bool(letters) == every:
        raise InvalidArgument("letters", "none" if not letters else "some", "give ids, or --all")

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


def _worded(entered: EntryReceipt) -> str:
    if entered.number is not None:
        return f"{entered.answer.value}, number {number(entered.number)}"
    if entered.opens_in_ms is not None:
        return f"{entered.answer.value}, it opens in {number(entered.opens_in_ms / 1000)} s"
    return entered.answer.value


def _result_text(found: EntryResult) -> str:
    parts = [found.state.value]
    parts += [] if found.number is None else [f"number {number(found.number)}"]
    parts += [] if found.code is None else [f"code {found.code}"]
    parts += [counted(found.points, "point")] if found.points else []
    parts += [] if found.reason is None else [found.reason]
    return ", ".join(parts)


def _line(letter: CampaignDeadLetter) -> str:
    entrant = "unreadable" if letter.entry is None else f"{letter.entry.user}, number {letter.entry.number}"
    return f"{letter.id}  {entrant}: {letter.reason}"
