"""Work handed out to a group of consumers: each message to one of them, none lost, none pending for ever."""

from typing import TYPE_CHECKING

from tidegate.core.exports import lazy_exports

if TYPE_CHECKING:
    from tidegate.flow.stream.consumer import Consumer
    from tidegate.flow.stream.dead_letters import DeadLetters
    from tidegate.flow.stream.keys import StreamKeys
    from tidegate.flow.stream.message import ConsumerStatus, DeadLetter, DeadLetterPage, Message, StreamStatus
    from tidegate.flow.stream.passage import Intake, Overdue, Passage
    from tidegate.flow.stream.settings import StreamSettings
    from tidegate.flow.stream.stream import Stream, owner_of

__all__ = [
    "Consumer",
    "ConsumerStatus",
    "DeadLetter",
    "DeadLetterPage",
    "DeadLetters",
    "Intake",
    "Message",
    "Overdue",
    "Passage",
    "Stream",
    "StreamKeys",
    "StreamSettings",
    "StreamStatus",
    "owner_of",
]

__getattr__ = lazy_exports(
    __name__,
    {
        "tidegate.flow.stream.consumer": "Consumer",
        "tidegate.flow.stream.dead_letters": "DeadLetters",
        "tidegate.flow.stream.keys": "StreamKeys",
        "tidegate.flow.stream.message": "ConsumerStatus DeadLetter DeadLetterPage Message StreamStatus",
        "tidegate.flow.stream.passage": "Intake Overdue Passage",
        "tidegate.flow.stream.settings": "StreamSettings",
        "tidegate.flow.stream.stream": "Stream owner_of",
    },
)
