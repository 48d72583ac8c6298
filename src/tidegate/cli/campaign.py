"""`tidegate campaign`: make, start, stop and look at campaigns; enter them, and see to what went wrong."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import msgspec
import typer

from tidegate.cli import campaign_entries
from tidegate.cli.campaign_opening import CAMPAIGN, JSON, ask, moment
from tidegate.cli.wording import clock, counted, number, span
from tidegate.core.errors import InvalidArgument
from tidegate.systems.campaigns.campaign import FIRST_COME, LARGEST_PAGE, Campaign, CampaignPlan, CampaignState

if TYPE_CHECKING:
    from tidegate.systems.campaigns.campaigns import CampaignStatus

app = typer.Typer(no_args_is_help=True, help="Campaigns: coupons for the first so many, points for all.")

_TITLE = typer.Option(None, help="What people see.")
_STARTS = typer.Option(None, "--starts-at", help="Nobody may enter before (ISO 8601, with its zone).")
_ENDS = typer.Option(None, "--ends-at", help="Nobody may enter from then on (ISO 8601, with its zone).")


@app.command()
def create(
    campaign: str = typer.Argument(help="An id for the new campaign; it stands in addresses."),
    *,
    kind: str = typer.Option(FIRST_COME, help="FIRST_COME, POINTS, or a kind of your own."),
    total: int = typer.Option(min=1, help="How many entries are expected; for FIRST_COME also the stock."),
    stock: int | None = typer.Option(None, min=0, help="How many are issued at most."),
    points: int = typer.Option(0, min=0, help="What each user gets of a POINTS campaign."),
    title: str | None = _TITLE,
    starts_at: str | None = _STARTS,
    ends_at: str | None = _ENDS,
    as_json: bool = JSON,
) -> None:
    """Make a campaign. Nobody may enter until it is started."""
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
    campaign: str = CAMPAIGN,
    *,
    total: int | None = typer.Option(None, min=1, help="How many entries are expected."),
    stock: int | None = typer.Option(None, min=0, help="How many are issued at most; not less than are issued."),
    points: int | None = typer.Option(None, min=0, help="What each user gets of a POINTS campaign."),
    title: str | None = _TITLE,
    starts_at: str | None = _STARTS,
    ends_at: str | None = _ENDS,
    as_json: bool = JSON,
) -> None:
    """Change a campaign, also while it runs. What is not named stays."""
    from tidegate.systems.campaigns.campaigns import CampaignChange

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
    campaign: str = CAMPAIGN, *, starts_at: str | None = _STARTS, ends_at: str | None = _ENDS, as_json: bool = JSON
) -> None:
    """Let people enter, from the start until the end. Twice is harmless."""
    begin, finish = moment("--starts-at", starts_at), moment("--ends-at", ends_at)
    _tell(ask(lambda campaigns: campaigns.start(campaign, begin, finish)), as_json=as_json)


@app.command()
def stop(campaign: str = CAMPAIGN, *, as_json: bool = JSON) -> None:
    """Let nobody enter any more. What was accepted is still decided. Twice is harmless."""
    _tell(ask(lambda campaigns: campaigns.stop(campaign)), as_json=as_json)


@app.command()
def delete(campaign: str = CAMPAIGN, *, as_json: bool = JSON) -> None:
    """Delete a campaign that is over, with its entries and dead letters. Points stay. It cannot be undone."""
    ask(lambda campaigns: campaigns.delete(campaign))
    typer.echo(msgspec.json.encode({"deleted": campaign}) if as_json else f"{campaign}: deleted")


@app.command("list")
def list_(
    *,
    after: str | None = typer.Option(None, help="Only campaigns behind this one."),
    limit: int = typer.Option(100, min=1, max=LARGEST_PAGE, help="So many at most."),
    as_json: bool = typer.Option(False, "--json", help="Print JSON, a line for each."),
) -> None:
    """List campaigns."""
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    found = ask(lambda campaigns: campaigns.page(after=after, limit=limit))
    if as_json:
        for each in found:
            typer.echo(msgspec.json.encode(each))
        return
    if not found:
        typer.echo("There are no campaigns. Make one: tidegate campaign create NAME --total 100")
        return
    table = Table("campaign", "kind", "state", "issued", "stock", box=None, pad_edge=False)
    for each in found:
        table.add_row(escape(each.id), each.kind, state_of(each), number(each.issued), _stock(each))
    Console(soft_wrap=True).print(table)
    if len(found) == limit:
        typer.echo(f"More: tidegate campaign list --after {found[-1].id}")


@app.command()
def status(campaign: str = CAMPAIGN, *, as_json: bool = JSON) -> None:
    """Show what a campaign has given, how many are in line, and who works on it."""
    found = ask(lambda campaigns: campaigns.status(campaign))
    typer.echo(msgspec.json.encode(found) if as_json else describe(found))


campaign_entries.add_to(app)


def describe(found: CampaignStatus) -> str:
    """How a campaign stands, for people."""
    campaign = found.campaign
    hands = f"{counted(len(found.hands), 'process', 'processes')}, {counted(found.consumers, 'consumer')}"
    idle = "nobody has entered" if found.idle_ms is None else f"the last one {span(found.idle_ms / 1000)} ago"
    nobody = "nobody: they come with the next entry" if not found.depth else "nobody yet"
    lines = [
        f"{campaign.id}: {campaign.kind}, {state_of(campaign)}",
        f"  issued   {number(campaign.issued)} of {_stock(campaign)}",
        f"  in line  {number(found.depth)}, of which {number(found.pending)} are being decided",
        f"  entered  {number(found.entered)}; {idle}",
        f"  at work  {hands if found.hands else nobody}",
    ]
    if found.dead:
        lines.append(f"  dead     {number(found.dead)}: tidegate campaign dead {campaign.id}")
    return "\n".join(lines)


def state_of(campaign: Campaign) -> str:
    """In a few words, with the times that matter."""
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
