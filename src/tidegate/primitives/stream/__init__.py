"""Messages for a group of consumers: each goes to one of them, none is lost, none stays pending forever."""

from typing import TYPE_CHECKING

from tidegate.core.exports import lazy_exports

if TYPE_CHECKING:
    from tidegate.primitives.settings import StreamSettings
    from tidegate.primitives.stream.consumer import Consumer
    from tidegate.primitives.stream.message import (
        ConsumerStatus,
        DeadLetter,
        DeadLetterPage,
        DeadLetters,
        Message,
        StreamKeys,
        StreamStatus,
    )
    from tidegate.primitives.stream.stream import Stream, owner_of
    from tidegate.primitives.stream.ticketed_stream import MessageSource, TicketedStream, UnusedTickets

__all__ = [
    "Consumer",
    "ConsumerStatus",
    "DeadLetter",
    "DeadLetterPage",
    "DeadLetters",
    "Message",
    "MessageSource",
    "Stream",
    "StreamKeys",
    "StreamSettings",
    "StreamStatus",
    "TicketedStream",
    "UnusedTickets",
    "owner_of",
]

__getattr__ = lazy_exports(
    __name__,
    {
        "tidegate.primitives.stream.consumer": "Consumer",
        "tidegate.primitives.stream.message": (
            "DeadLetters StreamKeys ConsumerStatus DeadLetter DeadLetterPage Message StreamStatus"
        ),
        "tidegate.primitives.stream.ticketed_stream": "MessageSource UnusedTickets TicketedStream",
        "tidegate.primitives.settings": "StreamSettings",
        "tidegate.primitives.stream.stream": "Stream owner_of",
    },
)
