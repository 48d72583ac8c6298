"""Tickets: what the task queue carries. A ticket names a job's message; it contains no job and grants no permission."""

import msgspec

from tidegate.core.errors import UNDECODABLE, InvalidArgument

_LARGEST_PART = 2**64


class Ticket(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The place of a message: its stream and id."""

    stream: str
    """The key of the stream, which differs between deployments."""
    message: str
    """The message's id in the stream."""


def write_ticket(stream: str, message: str) -> str:
    """Encode a ticket for the queue."""
    return msgspec.json.encode(Ticket(stream, message)).decode()


def read_ticket(body: str, *, stream: str) -> str:
    """Decode a ticket and return the message id; raises `InvalidArgument` unless it names a message of `stream`."""
    try:
        ticket = msgspec.json.decode(body, type=Ticket)
    except UNDECODABLE:
        raise InvalidArgument("body", f"{len(body)} characters", "is not the ticket of a job") from None
    if ticket.stream != stream:
        raise InvalidArgument("stream", ticket.stream[:80], f"is another deployment's; ours is {stream!r}")
    if not _is_id(ticket.message):
        raise InvalidArgument("message", ticket.message[:80], "is not the id of a message")
    return ticket.message


def _is_id(text: str) -> bool:
    parts = text.split("-")
    are_numbers = all(part.isascii() and part.isdigit() and len(part) <= 20 for part in parts)
    return len(parts) == 2 and are_numbers and all(int(part) < _LARGEST_PART for part in parts)
