"""Tells whether any process reads a stream. Without one, queued work would wait forever, which views should show."""

from collections.abc import Sequence

from tidegate.core.errors import Unavailable
from tidegate.primitives.membership import Membership
from tidegate.primitives.stream import Stream, owner_of


async def has_workers(membership: Membership, streams: Sequence[Stream]) -> bool | None:
    """Whether a living process reads one of `streams`; None if the server is unavailable.

    Without streams (with Kafka) any living process counts.
    """
    try:
        living = {member.owner for member in await membership.members() if member.remaining_ms > 0}
        if not living or not streams:
            return bool(living)
        readers = {owner_of(each.name) for stream in streams for each in (await stream.status()).consumers}
    except Unavailable:
        return None
    return bool(living & readers)
