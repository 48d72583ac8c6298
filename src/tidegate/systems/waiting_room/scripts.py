"""The room's Lua, with its Python face. Each script is one atomic step on one room."""

from collections.abc import Sequence
from typing import Any, Unpack

from tidegate.storage.valkey import Valkey, lua_script
from tidegate.systems.waiting_room.keys import RoomKeys


@lua_script("join.lua")
async def join(valkey: Valkey, *, user: str, claim: str, now_ms: int | None, **keys: Unpack[RoomKeys]) -> list[Any]:
    """Come to the line."""
    ...


@lua_script("look.lua")
async def look(valkey: Valkey, *, users: Sequence[str], now_ms: int | None, **keys: Unpack[RoomKeys]) -> list[Any]:
    """Where users stand."""
    ...


@lua_script("touch.lua")
async def touch(valkey: Valkey, *, numbers: Sequence[int], now_ms: int | None, **keys: Unpack[RoomKeys]) -> int:
    """Signs of life."""
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
    rings: int,
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
