"""Keys of campaigns. All are in one unit: adding an entry and waking a process is one atomic step."""

from collections.abc import Sequence
from typing import Any, TypedDict, Unpack

from tidegate.primitives.stream import StreamKeys
from tidegate.storage.valkey import Key, Unit, Valkey, lua_script

UNIT = "campaigns"
GROUP = "workers"
"""The consumer group of each campaign's stream."""


class CampaignKeys(TypedDict):
    """The keys of one campaign, and those that all campaigns share."""

    book: Key
    """hash: the campaign's rules as SQL has them, and counters. Absent: the campaign is not installed."""
    stream: Key
    """stream: undecided entries; absent while there are none."""
    dead: Key
    """stream: the dead letters."""
    entries: Key
    """hash: user -> number|idempotency key of accepted users."""
    processes: Key
    """set: processes that serve the campaign."""
    wakeups: Key
    """list, shared: campaigns that need a process, the longest waiting at the right."""
    woken: Key
    """set, shared: campaigns with a pending wake-up."""
    busy: Key
    """set, shared: campaigns that may have entries or processes."""


class ProcessKeys(TypedDict):
    """The keys of one process."""

    served: Key
    """set: campaigns that it serves."""
    taken: Key
    """list: wake-ups that it took and has not handled."""


def campaigns_unit(valkey: Valkey) -> Unit:
    """Return the unit of all campaigns."""
    return valkey.unit(UNIT)


def stream_name(campaign: str) -> str:
    """Return the name of the stream of a campaign."""
    return f"campaign.{campaign}"


def campaign_keys(valkey: Valkey, campaign: str) -> CampaignKeys:
    """Return the keys of one campaign."""
    unit = campaigns_unit(valkey)
    stream = StreamKeys(unit, stream_name(campaign))
    return CampaignKeys(
        book=unit.key(f"c:{campaign}"),
        stream=stream.stream,
        dead=stream.dead,
        entries=unit.key(f"e:{campaign}"),
        processes=unit.key(f"h:{campaign}"),
        wakeups=wakeups_key(valkey),
        woken=unit.key("called"),
        busy=busy_key(valkey),
    )


def process_keys(valkey: Valkey, owner: str) -> ProcessKeys:
    """Return the keys of one process."""
    unit = campaigns_unit(valkey)
    return ProcessKeys(served=unit.key(f"s:{owner}"), taken=unit.key(f"taken:{owner}"))


def wakeups_key(valkey: Valkey) -> Key:
    """Return the key of the list of wake-ups."""
    return campaigns_unit(valkey).key("calls")


def busy_key(valkey: Valkey) -> Key:
    """Return the key of the set of campaigns that may have entries or processes."""
    return campaigns_unit(valkey).key("busy")


def result_feed_key(valkey: Valkey) -> Key:
    """Return the key of the stream of users with a new result."""
    return campaigns_unit(valkey).key("results")


def remembered(number: int, key: str | None) -> str:
    """Return what Valkey stores for an accepted user: the number and the idempotency key."""
    return f"{number}|{key or ''}"


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
    backlog_limit: int,
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
