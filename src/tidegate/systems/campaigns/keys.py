"""Keys of campaigns. All are in one unit: adding an entry and waking a process is one atomic step."""

from typing import TypedDict

from tidegate.primitives.stream import StreamKeys
from tidegate.storage.valkey import Key, Unit, Valkey

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
    return campaigns_unit(valkey).key("news")


def remembered(number: int, key: str | None) -> str:
    """Return what Valkey stores for an accepted user: the number and the idempotency key."""
    return f"{number}|{key or ''}"
