"""The keys of a stream."""

from tidegate.core.arguments import require_name
from tidegate.storage.valkey import Key, Unit


class StreamKeys:
    """Keys of one stream, all in one unit, because messages move between them in one atomic step."""

    def __init__(self, unit: Unit, name: str) -> None:
        self._unit, self._name = unit, require_name("stream", name)
        self.stream: Key = unit.key(name)
        """stream: the messages, waiting or pending."""
        self.dead: Key = unit.key(f"{name}:dead")
        """stream: the dead letters."""

    def added(self, token: str) -> Key:
        """string, expires: this batch has been added."""
        return self._unit.key(f"{self._name}:added:{token}")
