"""Keys of a room, and typed stubs of its Lua scripts.

All keys of a room are in one unit, and each script is one atomic step on one room. The header of a `.lua` file is its
contract.
"""

from collections.abc import Sequence
from typing import Any, TypedDict, Unpack

from tidegate.storage.valkey import Key, Valkey, lua_script


class RoomKeys(TypedDict):
    """The keys of one room."""

    book: Key
    """hash: the room's rules as SQL has them, and its counters. Without `epoch` the room is lost."""
    waiting: Key
    """zset: user scored by place."""
    entering: Key
    """zset: user scored by the time at which another process settles the admission, in ms."""
    entries: Key
    """hash: user -> admission|place|last sign of life, of admissions in progress."""
    active: Key
    """zset: user scored by the end of the session, in ms."""
    admissions: Key
    """hash: user -> admission, of visitors inside."""
    guests: Key
    """set: users inside, or being admitted, that do not count against the capacity."""
    seen: Key
    """string: four bytes per arrival number, the second of the visitor's last sign of life."""
    chunks: Key
    """zset: blocks of 1,024 arrival numbers, scored by the time at which the first visitor in them can be overdue, in
    ms."""
    log: Key
    """stream: every step, if the room keeps a log."""
    moves: Key
    """stream: the last steps by which the line got shorter; watchers of the room read it."""
    wake: Key
    """list: wake-up of the room's worker, at most one token."""


def room_keys(valkey: Valkey, room: str) -> RoomKeys:
    """Return the keys of a room."""
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
    """Return the key of the wake-up that is sent when a room is created or deleted."""
    return valkey.unit("rooms").key("created")


@lua_script("join.lua")
async def join(
    valkey: Valkey, *, attempts: Sequence[tuple[str, str]], now_ms: int | None, **keys: Unpack[RoomKeys]
) -> list[Any]:
    """Add visitors to the line, or find them."""
    ...


@lua_script("read_standings.lua")
async def read_standings(
    valkey: Valkey, *, users: Sequence[str], now_ms: int | None, **keys: Unpack[RoomKeys]
) -> list[Any]:
    """Return where several visitors stand, and record a sign of life of each."""
    ...


@lua_script("leave.lua")
async def leave(valkey: Valkey, *, user: str, now_ms: int | None, **keys: Unpack[RoomKeys]) -> list[Any]:
    """Remove a visitor from the line."""
    ...


@lua_script("sweep.lua")
async def sweep(valkey: Valkey, *, most: int, now_ms: int | None, **keys: Unpack[RoomKeys]) -> list[Any]:
    """Remove visitors without a sign of life from the line."""
    ...


@lua_script("status.lua")
async def status(valkey: Valkey, *, now_ms: int | None, **keys: Unpack[RoomKeys]) -> list[Any]:
    """Count the visitors in each state."""
    ...


@lua_script("admit.lua")
async def admit(
    valkey: Valkey, *, fence: int, most: int, settle_ms: int, now_ms: int | None, **keys: Unpack[RoomKeys]
) -> list[Any]:
    """Take visitors out of the front of the line: the first step of their admission."""
    ...


@lua_script("invite.lua")
async def invite(
    valkey: Valkey, *, users: Sequence[str], settle_ms: int, now_ms: int | None, **keys: Unpack[RoomKeys]
) -> list[Any]:
    """Begin the admission of named users, beside the capacity."""
    ...


@lua_script("activate.lua")
async def activate(
    valkey: Valkey, *, sessions: Sequence[tuple[str, int, int]], now_ms: int | None, **keys: Unpack[RoomKeys]
) -> int:
    """Record which visitors are inside, and the end of their sessions."""
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
    """Return visitors of reverted admissions to their previous places."""
    ...


@lua_script("release.lua")
async def release(valkey: Valkey, *, sessions: Sequence[tuple[str, int]], what: str, **keys: Unpack[RoomKeys]) -> int:
    """Free the places of ended sessions."""
    ...


@lua_script("due.lua")
async def due(valkey: Valkey, *, most: int, now_ms: int | None, **keys: Unpack[RoomKeys]) -> list[Any]:
    """Return admissions and sessions that are over."""
    ...


@lua_script("pace.lua")
async def pace(valkey: Valkey, *, most: int, now_ms: int | None, **keys: Unpack[RoomKeys]) -> list[Any]:
    """Return the recent steps in which visitors were admitted."""
    ...


@lua_script("pause.lua")
async def pause(
    valkey: Valkey, *, token: str, fence: int, lasts_ms: int, now_ms: int | None, **keys: Unpack[RoomKeys]
) -> list[Any]:
    """Pause admissions while the caller installs the room; return what the server knows."""
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
    """Write the state of the room according to SQL."""
    ...
