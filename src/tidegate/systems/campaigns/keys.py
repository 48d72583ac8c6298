"""The keys of campaigns: one unit for all, since the door adds a message and calls for hands in one step."""

from typing import TypedDict

from tidegate.primitives.stream import StreamKeys
from tidegate.storage.valkey import Key, Unit, Valkey

UNIT = "campaigns"
GROUP = "workers"
"""The consumer group of each campaign's stream."""


class CampaignKeys(TypedDict):
    """Where one campaign lives."""

    book: Key
    """hash: the campaign's rules as SQL has them, and the door's counters. Absent: it is not installed."""
    stream: Key
    """stream: the entries that are not decided; gone while nobody has anything to do."""
    dead: Key
    """stream: the dead letters."""
    entries: Key
    """hash: user -> number|idempotency key, of those whom the door let in."""
    processes: Key
    """set: the processes that serve it."""
    wakeups: Key
    """list: campaigns that call for hands, the one that calls longest at the right; one list for all."""
    woken: Key
    """set: those of which a call is under way."""
    busy: Key
    """set: campaigns that may have messages or hands."""


class ProcessKeys(TypedDict):
    """What one process has taken upon itself."""

    served: Key
    """set: the campaigns that it serves."""
    taken: Key
    """list: calls that it took and has not answered."""


def campaigns_unit(valkey: Valkey) -> Unit:
    """The one unit."""
    return valkey.unit(UNIT)


def stream_name(campaign: str) -> str:
    """How the stream of a campaign is called."""
    return f"campaign.{campaign}"


def campaign_keys(valkey: Valkey, campaign: str) -> CampaignKeys:
    """Those of one campaign."""
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
    """Those of one process."""
    unit = campaigns_unit(valkey)
    return ProcessKeys(served=unit.key(f"s:{owner}"), taken=unit.key(f"taken:{owner}"))


def wakeups_key(valkey: Valkey) -> Key:
    """Where campaigns call for hands."""
    return campaigns_unit(valkey).key("calls")


def busy_key(valkey: Valkey) -> Key:
    """The campaigns that may have messages or hands."""
    return campaigns_unit(valkey).key("busy")


def result_feed_key(valkey: Valkey) -> Key:
    """stream: of which users the results moved."""
    return campaigns_unit(valkey).key("news")


def remembered(number: int, key: str | None) -> str:
    """What the door keeps of somebody: his number, and the key with which he came."""
    return f"{number}|{key or ''}"
