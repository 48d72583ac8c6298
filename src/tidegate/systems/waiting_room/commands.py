"""`tidegate room`: create, change, open, close and delete waiting rooms, and admit named users."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import msgspec
import typer

from tidegate.cli.running import load_settings, run
from tidegate.cli.wording import clock, counted, number, span
from tidegate.core.errors import InvalidArgument

if TYPE_CHECKING:
    from tidegate.settings import Settings
    from tidegate.systems.waiting_room import RoomPlan, RoomStatus, WaitingRooms

app = typer.Typer(
    no_args_is_help=True, help="Waiting rooms: visitors wait in order and are admitted as places become free."
)
_ROOM = typer.Argument(help="The name of a room.")
_NO_ROOMS = "There are no rooms. Create one: tidegate room create NAME --capacity 100"
_PUZZLE = typer.Option(0, help="Bits of the puzzle that browsers solve before they join, up to 24; 16 take about 1 s.")
_JSON = typer.Option(False, "--json", help="Print the result as JSON.")
_DAY_S = 86_400
_CHANGEABLE = (
    "--capacity, --rate, --session, --longest, --abandon-after, --log, --title, --entrance, --anonymous, "
    "--no-anonymous or --puzzle-bits"
)


@app.command()
def create(
    room: str = typer.Argument(help="The name of the new room."),
    *,
    capacity: int = typer.Option(min=0, help="Number of visitors that may be inside at the same time."),
    rate: float | None = typer.Option(
        None, min=0.001, help="Visitors that may be admitted per second; default: no limit."
    ),
    session: float = typer.Option(600, min=1, max=_DAY_S, help="Seconds after which a session without activity ends."),
    longest: float = typer.Option(1800, min=1, max=_DAY_S, help="Seconds after which a session ends in any case."),
    abandon_after: float = typer.Option(
        120, min=1, max=_DAY_S, help="Seconds without a sign of life after which a visitor is removed."
    ),
    log: int = typer.Option(0, min=0, help="Keep a log of about this many steps."),
    title: str = typer.Option("", help="Title on the waiting page; default: the name."),
    entrance: str | None = typer.Option(None, help="Where admitted visitors are sent: an address, or a path."),
    anonymous: bool = typer.Option(False, "--anonymous", help="Let anonymous visitors join on the waiting page."),
    puzzle_bits: int = _PUZZLE,
    as_json: bool = _JSON,
) -> None:
    """Create a room. It is closed until it is opened."""
    from tidegate.systems.waiting_room import RoomPlan

    plan = RoomPlan(
        capacity=capacity,
        admit_per_second=rate,
        session=timedelta(seconds=session),
        longest_session=timedelta(seconds=longest),
        abandon_after=timedelta(seconds=abandon_after),
        log_length=log,
        title=title,
        entrance=entrance,
        anonymous=anonymous,
        puzzle_bits=puzzle_bits,
    )
    _report(run(_create(load_settings(), room, plan)), as_json=as_json)


@app.command()
def alter(
    room: str = _ROOM,
    *,
    capacity: int | None = typer.Option(None, min=0, help="Number of visitors that may be inside at the same time."),
    rate: float | None = typer.Option(None, min=0, help="Visitors that may be admitted per second; 0: no limit."),
    session: float | None = typer.Option(
        None, min=1, max=_DAY_S, help="Seconds after which a session without activity ends."
    ),
    longest: float | None = typer.Option(
        None, min=1, max=_DAY_S, help="Seconds after which a session ends in any case."
    ),
    abandon_after: float | None = typer.Option(
        None, min=1, max=_DAY_S, help="Seconds without a sign of life after which a visitor is removed."
    ),
    log: int | None = typer.Option(None, min=0, help="Keep a log of about this many steps."),
    title: str | None = typer.Option(None, help="Title on the waiting page."),
    entrance: str | None = typer.Option(None, help="Where admitted visitors are sent; empty: nowhere."),
    anonymous: bool | None = typer.Option(
        None, "--anonymous/--no-anonymous", help="Whether anonymous visitors may join on the waiting page."
    ),
    puzzle_bits: int | None = typer.Option(None, help="Bits of the puzzle; 0: none."),
    as_json: bool = _JSON,
) -> None:
    """Change a room, also while it is open.

    Options that are not given keep their values; sessions that have begun are not changed.
    """
    given: dict[str, Any] = {
        "capacity": capacity,
        "session": _seconds(session),
        "longest_session": _seconds(longest),
        "abandon_after": _seconds(abandon_after),
        "log_length": log,
        "title": title,
        "anonymous": anonymous,
        "puzzle_bits": puzzle_bits,
    }
    changes = {name: value for name, value in given.items() if value is not None}
    changes |= {} if rate is None else {"admit_per_second": rate or None}
    changes |= {} if entrance is None else {"entrance": entrance or None}
    if not changes:
        raise typer.BadParameter(f"give at least one of {_CHANGEABLE}")
    _report(run(_amend(load_settings(), room, changes)), as_json=as_json)


@app.command("open")
def open_(
    room: str = _ROOM,
    *,
    at: str | None = typer.Option(
        None, help="The start (ISO 8601, with time zone); visitors that join before take part in a draw."
    ),
    as_json: bool = _JSON,
) -> None:
    """Open a room: visitors can join at once, and are admitted from the start on (default: now)."""
    _report(run(_open(load_settings(), room, _moment(at))), as_json=as_json)


@app.command()
def close(room: str = _ROOM, *, as_json: bool = _JSON) -> None:
    """Close a room: visitors cannot join and are not admitted. Places and sessions are kept."""
    _report(run(_close(load_settings(), room)), as_json=as_json)


@app.command()
def delete(
    room: str = _ROOM,
    *,
    force: bool = typer.Option(
        False, "--force", help="Delete the room even if visitors are inside; their sessions end."
    ),
    as_json: bool = _JSON,
) -> None:
    """Delete a closed room with its line and the records of its admissions. This cannot be undone."""
    run(_delete(load_settings(), room, force=force))
    typer.echo(msgspec.json.encode({"deleted": room}) if as_json else f"{room}: deleted")


@app.command()
def status(
    room: str | None = typer.Argument(None, help="The name of a room; default: all rooms."), *, as_json: bool = _JSON
) -> None:
    """Show one room or all rooms: how many visitors wait and how many are inside."""
    found = run(_status(load_settings(), room))
    if as_json:
        typer.echo(msgspec.json.encode(found if room is None else found[0]))
        return
    for each in found:
        _show(each)
    if not found:
        typer.echo(_NO_ROOMS)


@app.command("list")
def list_(*, as_json: bool = _JSON) -> None:
    """List all rooms, and whether they are open. The JSON output is the same as that of `status`."""
    found = run(_status(load_settings(), None))
    if as_json:
        typer.echo(msgspec.json.encode(found))
        return
    for each in found:
        typer.echo(f"{each.name}: {_state(each, datetime.now(UTC))}")
    if not found:
        typer.echo(_NO_ROOMS)


@app.command()
def admit(
    room: str = _ROOM, users: list[str] = typer.Argument(help="Users to admit."), *, as_json: bool = _JSON
) -> None:
    """Admit named users at once, beside the capacity, whether they wait or not."""
    admitted = run(_admit(load_settings(), room, users))
    if as_json:
        typer.echo(msgspec.json.encode({"admitted": admitted}))
    else:
        typer.echo(f"{counted(admitted, 'user')} admitted, not counting users that were inside before")


@asynccontextmanager
async def _rooms(settings: Settings) -> AsyncGenerator[WaitingRooms]:
    from tidegate.connections import open_database, open_valkey
    from tidegate.systems.waiting_room.system import open_waiting_rooms

    async with open_valkey(settings) as valkey, open_database(settings) as database:
        yield open_waiting_rooms(settings, database, valkey)


async def _create(settings: Settings, room: str, plan: RoomPlan) -> RoomStatus:
    async with _rooms(settings) as rooms:
        await rooms.create(room, plan)
        return await rooms.status(room)


async def _amend(settings: Settings, room: str, changes: Mapping[str, Any]) -> RoomStatus:
    async with _rooms(settings) as rooms:
        await rooms.change_plan(room, changes)
        return await rooms.status(room)


async def _open(settings: Settings, room: str, opens_at: datetime | None) -> RoomStatus:
    async with _rooms(settings) as rooms:
        await rooms.open(room, opens_at)
        return await rooms.status(room)


async def _close(settings: Settings, room: str) -> RoomStatus:
    async with _rooms(settings) as rooms:
        await rooms.close(room)
        return await rooms.status(room)


async def _delete(settings: Settings, room: str, *, force: bool) -> None:
    async with _rooms(settings) as rooms:
        await rooms.delete(room, force=force)


async def _status(settings: Settings, room: str | None) -> list[RoomStatus]:
    async with _rooms(settings) as rooms:
        names = [each.name for each in await rooms.everything()] if room is None else [room]
        return [await rooms.status(name) for name in names]


async def _admit(settings: Settings, room: str, users: list[str]) -> int:
    async with _rooms(settings) as rooms:
        return await (await rooms.room(room)).invite(users)


def _seconds(value: float | None) -> timedelta | None:
    return None if value is None else timedelta(seconds=value)


def _moment(text: str | None) -> datetime | None:
    if text is None:
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise InvalidArgument("--at", text, "must be a time like 2026-12-24T12:00:00+09:00") from None
    if moment.tzinfo is None:
        raise InvalidArgument("--at", text, "must have a time zone")
    return moment.astimezone(UTC)


def _report(found: RoomStatus, *, as_json: bool) -> None:
    if as_json:
        typer.echo(msgspec.json.encode(found))
    else:
        _show(found)


def _show(found: RoomStatus) -> None:
    counts, plan, now = found.counts, found.plan, datetime.now(UTC)
    rate = "" if plan.admit_per_second is None else f", {number(plan.admit_per_second)} per second"
    beside = f", and {number(counts.guests)} beside the capacity" if counts.guests else ""
    counted_in = counts.active + counts.entering - counts.guests
    typer.echo(f"{found.name}: {_state(found, now)}")
    typer.echo(f"  inside   {number(counted_in)} of {number(plan.capacity)}{beside}{rate}")
    typer.echo(f"  waiting  {number(counts.waiting)}")
    typer.echo(f"  session  {span(plan.session.total_seconds())}, at most {span(plan.longest_session.total_seconds())}")
    typer.echo(f"  draw     sha256 {found.commitment}")
    if found.seed is not None:
        typer.echo(f"           seed   {found.seed}")


def _state(found: RoomStatus, now: datetime) -> str:
    from tidegate.systems.waiting_room import RoomState

    if found.state is RoomState.CLOSED:
        return "closed"
    if found.opens_at is not None and found.opens_at > now:
        return f"visitors can join; starts at {clock(found.opens_at, now)} {found.opens_at.astimezone():%Z}"
    return "open"
