"""Messages that are numbered."""

from collections.abc import Iterable

from tidegate.primitives.stream import DeadLetter, Message


def numbered(numbers: Iterable[int]) -> list[dict[bytes, bytes]]:
    return [{b"n": b"%d" % n} for n in numbers]


def numbers(messages: Iterable[Message | DeadLetter]) -> list[int]:
    return [int(message.fields[b"n"]) for message in messages]


def ids(messages: Iterable[Message]) -> list[str]:
    return [message.id for message in messages]
