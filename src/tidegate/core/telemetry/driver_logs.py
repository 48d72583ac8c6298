"""Log lines of client libraries: at most one per message template and minute.

A library that logs each failed attempt writes hundreds of lines per second while its server is away. Its errors reach
our own log through the exceptions that it raises; the lines of the library only add details.
"""

import logging
from time import monotonic

_QUIET_S = 60.0
_MOST_MESSAGES = 200
"""Maximum number of templates that are remembered."""


class _OncePerMinute(logging.Handler):
    """Pass a record to the root logger unless one with the same template was passed within the last minute."""

    def __init__(self) -> None:
        super().__init__()
        self._passed_at: dict[tuple[str, str], float] = {}

    def emit(self, record: logging.LogRecord) -> None:
        # The template and not the text, which differs in each attempt.
        key, now = (record.name, str(record.msg)), monotonic()
        if now - self._passed_at.get(key, float("-inf")) < _QUIET_S:
            return
        if len(self._passed_at) >= _MOST_MESSAGES:
            self._passed_at.clear()
        self._passed_at[key] = now
        logging.getLogger().handle(record)


def limit_driver_log(name: str, *, level: int) -> None:
    """Limit the lines of the logger `name` and of those below it. Records below `level` are dropped."""
    logger = logging.getLogger(name)
    logger.setLevel(level)
    # The handler passes records on. With propagation they would be written twice.
    logger.propagate = False
    if not any(isinstance(each, _OncePerMinute) for each in logger.handlers):
        logger.addHandler(_OncePerMinute())
