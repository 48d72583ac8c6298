"""Typed stubs of the Lua scripts of campaigns. Each script is one atomic step on one campaign.

`enter.lua` is in `entry_service.py`.
"""

from collections.abc import Sequence
from typing import Any, Unpack

from tidegate.storage.valkey import Key, Valkey, lua_script
from tidegate.systems.campaigns.keys import CampaignKeys


@lua_script("serve.lua")
async def serve(
    valkey: Valkey,
    *,
    served: Key,
    taken: Key,
    campaign: str,
    owner: str,
    group: str,
    if_needed: int,
    **keys: Unpack[CampaignKeys],
) -> list[Any]:
    """Add a process to those that serve a campaign."""
    ...


@lua_script("settle.lua")
async def settle(
    valkey: Valkey,
    *,
    campaign: str,
    group: str,
    settled: Sequence[tuple[str, str, str, str]],
    sold_out: int,
    crowd: int,
    pause_ms: int,
    now_ms: int | None,
    **keys: Unpack[CampaignKeys],
) -> list[int]:
    """Acknowledge and delete decided entries, and update the counters."""
    ...


@lua_script("leave.lua")
async def leave(
    valkey: Valkey,
    *,
    served: Key,
    campaign: str,
    owner: str,
    group: str,
    idle_ms: int,
    now_ms: int | None,
    **keys: Unpack[CampaignKeys],
) -> list[Any]:
    """Remove a process from those that serve a campaign."""
    ...


@lua_script("ignore_wakeup.lua")
async def ignore_wakeup(valkey: Valkey, *, taken: Key, campaign: str, **keys: Unpack[CampaignKeys]) -> int:
    """Drop a wake-up of a campaign that does not exist."""
    ...


@lua_script("return_wakeups.lua")
async def return_wakeups(valkey: Valkey, *, wakeups: Key, taken: Key) -> int:
    """Return the wake-ups that a process took to the shared list."""
    ...


@lua_script("repair.lua")
async def repair(valkey: Valkey, *, campaign: str, group: str, **keys: Unpack[CampaignKeys]) -> list[Any]:
    """Repair a campaign after data loss; return the processes that serve it."""
    ...


@lua_script("install.lua")
async def install(
    valkey: Valkey,
    *,
    rules: dict[str, Any],
    opens_in_ms: int,
    closes_in_ms: int,
    counters: Sequence[int],
    known: Sequence[tuple[str, str]],
    forget_ms: int,
    is_last: int,
    now_ms: int | None,
    **keys: Unpack[CampaignKeys],
) -> bytes:
    """Write the rules of a campaign, and its counters and users where they are lost."""
    ...


@lua_script("replay.lua")
async def replay(
    valkey: Valkey, *, campaign: str, ids: Sequence[str], now_ms: int | None, **keys: Unpack[CampaignKeys]
) -> int:
    """Move dead letters back to the stream."""
    ...


@lua_script("discard.lua")
async def discard(valkey: Valkey, *, letters: Sequence[tuple[str, str, str]], **keys: Unpack[CampaignKeys]) -> int:
    """Delete dead letters, and the memory of their users."""
    ...


@lua_script("status.lua")
async def status(
    valkey: Valkey, *, campaign: str, group: str, now_ms: int | None, **keys: Unpack[CampaignKeys]
) -> list[Any]:
    """Return counts and state of a campaign."""
    ...
