"""Work handed out to a group of consumers: each message to one of them, none lost, none pending for ever."""

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
