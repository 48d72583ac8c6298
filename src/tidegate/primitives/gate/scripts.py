"""The gate's Lua, with its Python face. Each script is one atomic step on one shard."""

from collections.abc import Sequence
from typing import Unpack

from tidegate.primitives.gate.jobs import Job, Settlement
from tidegate.primitives.gate.keys import GateKeys
from tidegate.primitives.gate.memory import Note
from tidegate.storage.valkey import Valkey, lua_script


@lua_script("offer.lua")
async def offer(valkey: Valkey, *, offers: Sequence[Job], now_ms: int | None, **keys: Unpack[GateKeys]) -> list[int]:
    """Take jobs in."""
    ...


@lua_script("settle.lua")
async def settle(
    valkey: Valkey,
    *,
    group: str,
    results: Sequence[Settlement],
    offers: Sequence[Job],
    now_ms: int | None,
    **keys: Unpack[GateKeys],
) -> list[int]:
    """Acknowledge, book, take follow-ups in, open."""
    ...


@lua_script("tick.lua")
async def tick(valkey: Valkey, *, most: int, now_ms: int | None, **keys: Unpack[GateKeys]) -> list[int]:
    """Do what is due."""
    ...


@lua_script("forget.lua")
async def forget(valkey: Valkey, *, jobs: Sequence[str], now_ms: int | None, **keys: Unpack[GateKeys]) -> list[int]:
    """Take jobs out again."""
    ...


@lua_script("enrol.lua")
async def enrol(
    valkey: Valkey,
    *,
    credential: str,
    pool: str,
    concurrency: int,
    first: int,
    per_minute: int,
    alone: str,
    floor: int,
    window_ms: int,
    patience_ms: int,
    metered: int,
    now_ms: int | None,
    **keys: Unpack[GateKeys],
) -> list[bytes | int]:
    """Add or change a credential."""
    ...


@lua_script("dismiss.lua")
async def dismiss(valkey: Valkey, *, credential: str, now_ms: int | None, **keys: Unpack[GateKeys]) -> int:
    """Take a credential out of its pool."""
    ...


@lua_script("status.lua")
async def status(valkey: Valkey, *, pool: str, now_ms: int | None, **keys: Unpack[GateKeys]) -> bytes:
    """How a pool stands."""
    ...


@lua_script("free.lua")
async def free(valkey: Valkey, *, lost: Sequence[str], now_ms: int | None, **keys: Unpack[GateKeys]) -> int:
    """Free permits whose message is gone."""
    ...


@lua_script("open.lua")
async def open_pool(valkey: Valkey, *, pool: str, now_ms: int | None, **keys: Unpack[GateKeys]) -> int:
    """Let out of a pool what may go."""
    ...


@lua_script("pace.lua")
async def pace(
    valkey: Valkey,
    *,
    pool: str,
    bucket: str,
    gap_ms: int,
    alone: int,
    rest_ms: int,
    now_ms: int | None,
    **keys: Unpack[GateKeys],
) -> int:
    """Say how fast a bucket may be called."""
    ...


@lua_script("census.lua")
async def census(
    valkey: Valkey, *, cursor: str, now_ms: int | None, **keys: Unpack[GateKeys]
) -> tuple[bytes, int, int]:
    """Count credentials that may make no call at present, and find when the last may again; one page."""
    ...


@lua_script("remind.lua")
async def remind(
    valkey: Valkey,
    *,
    pool: str,
    started: int,
    running: int,
    notes: Sequence[Note],
    now_ms: int | None,
    **keys: Unpack[GateKeys],
) -> int:
    """Tell a gate what it may have forgotten of a pool."""
    ...


@lua_script("report.lua")
async def report(
    valkey: Valkey, *, results: Sequence[Settlement], now_ms: int | None, **keys: Unpack[GateKeys]
) -> list[int]:
    """Book at once that the upstream refused a call."""
    ...


@lua_script("confirm.lua")
async def confirm(
    valkey: Valkey, *, asked: Sequence[tuple[str, str, str, int]], now_ms: int | None, **keys: Unpack[GateKeys]
) -> list[list[int]]:
    """Ask whether requests may still be sent."""
    ...
