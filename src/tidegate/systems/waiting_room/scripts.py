"""The keys of a room: one unit, since every step of the line is atomic."""

from collections.abc import Sequence
from typing import Any, TypedDict, Unpack

from tidegate.storage.valkey import Key, Valkey, lua_script


class RoomKeys(TypedDict):
    """Where one room lives."""

    book: Key
    """hash: the room's rules as SQL has them, and its counters. Without an epoch in it the room is lost."""
    waiting: Key
    """zset: user scored by place."""
    entering: Key
    """zset: user scored by when somebody else settles the admission, in ms."""
    entries: Key
    """hash: user -> admission|place|last sign of life."""
    active: Key
    """zset: user scored by the end of the session, in ms."""
    admissions: Key
    """hash: user -> admission, of those who are inside."""
    guests: Key
    """set: those inside or on the way who do not count against the capacity."""
    seen: Key
    """string: four bytes for each arrival number, the second in which its owner was last seen."""
    chunks: Key
    """zset: a thousand arrival numbers, scored by when the first of them can have been silent too long, in ms."""
    log: Key
    """stream: every step, where the room keeps a log."""
    moves: Key
    """stream: the last steps by which the line got shorter; whoever follows it reads here."""
    wake: Key
    """list: the wakeup of the room's keeper, at most one token."""


def room_keys(valkey: Valkey, room: str) -> RoomKeys:
    """Those of the room with this name."""
    unit = valkey.unit(f"room:{room}")
    return RoomKeys(
        book=unit.key("book"),
        waiting=unit.key("waiting"),
        entering=unit.key("entering"),
        entries=unit.key("entries"),
        active=unit.key("active"),
        admissions=unit.key("admissions"),
        guests=unit.key("guests"),
        seen=unit.key("seen"),
        chunks=unit.key("chunks"),
        log=unit.key("log"),
        moves=unit.key("moves"),
        wake=unit.key("wake"),
    )


def room_created_key(valkey: Valkey) -> Key:
    """Where the leader hears that there is a new room."""
    return valkey.unit("rooms").key("created")


@lua_script("join.lua")
async def join(valkey: Valkey, *, user: str, claim: str, now_ms: int | None, **keys: Unpack[RoomKeys]) -> list[Any]:
    """Come to the line."""
    ...


@lua_script("look.lua")
async def look(valkey: Valkey, *, users: Sequence[str], now_ms: int | None, **keys: Unpack[RoomKeys]) -> list[Any]:
    """Where users stand."""
    ...


@lua_script("leave.lua")
async def leave(valkey: Valkey, *, user: str, now_ms: int | None, **keys: Unpack[RoomKeys]) -> list[Any]:
    """Leave the line."""
    ...


@lua_script("sweep.lua")
async def sweep(valkey: Valkey, *, most: int, now_ms: int | None, **keys: Unpack[RoomKeys]) -> list[Any]:
    """Drop who is gone."""
    ...


@lua_script("status.lua")
async def status(valkey: Valkey, *, now_ms: int | None, **keys: Unpack[RoomKeys]) -> list[Any]:
    """How many are where."""
    ...


@lua_script("admit.lua")
async def admit(
    valkey: Valkey, *, fence: int, most: int, settle_ms: int, now_ms: int | None, **keys: Unpack[RoomKeys]
) -> list[Any]:
    """Take those at the front out of the line."""
    ...


@lua_script("invite.lua")
async def invite(
    valkey: Valkey, *, users: Sequence[str], settle_ms: int, now_ms: int | None, **keys: Unpack[RoomKeys]
) -> list[Any]:
    """Take named users in, beside the capacity."""
    ...


@lua_script("activate.lua")
async def activate(
    valkey: Valkey, *, sessions: Sequence[tuple[str, int, int]], now_ms: int | None, **keys: Unpack[RoomKeys]
) -> int:
    """Tell who is inside, and for how long."""
    ...


@lua_script("restore.lua")
async def restore(
    valkey: Valkey,
    *,
    entered: Sequence[tuple[str, int]],
    wake_worker: int,
    now_ms: int | None,
    **keys: Unpack[RoomKeys],
) -> int:
    """Give old places back."""
    ...


@lua_script("release.lua")
async def release(valkey: Valkey, *, sessions: Sequence[tuple[str, int]], what: str, **keys: Unpack[RoomKeys]) -> int:
    """Free places inside."""
    ...


@lua_script("due.lua")
async def due(valkey: Valkey, *, most: int, now_ms: int | None, **keys: Unpack[RoomKeys]) -> list[Any]:
    """Whose time is up."""
    ...


@lua_script("pace.lua")
async def pace(valkey: Valkey, *, most: int, now_ms: int | None, **keys: Unpack[RoomKeys]) -> list[Any]:
    """In which steps people were let in lately."""
    ...


@lua_script("pause.lua")
async def pause(
    valkey: Valkey, *, token: str, fence: int, lasts_ms: int, now_ms: int | None, **keys: Unpack[RoomKeys]
) -> list[Any]:
    """Let nobody in while somebody installs the room; tells what the server knows."""
    ...


@lua_script("install.lua")
async def install(
    valkey: Valkey,
    *,
    rules: dict[str, Any],
    opens_in_ms: int,
    numbers: Sequence[int],
    admission: int,
    sessions: Sequence[tuple[str, int, int, int]],
    over: Sequence[tuple[str, int]],
    token: str,
    paused_run: str,
    is_last: int,
    now_ms: int | None,
    **keys: Unpack[RoomKeys],
) -> bytes:
    """Make the room what SQL says."""
    ...
