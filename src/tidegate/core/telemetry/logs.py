"""Log lines: a dotted past event from the catalogue, facts as fields, units in the names of fields.

    log = get_logger(__name__)
    log.info("stream.taken_over", stream=name, messages=12, idle_ms=15_004)

Records of libraries that use the standard `logging` are written in the same form, also without secrets.
"""

import io
import json
import logging
import sys
from collections.abc import Collection
from time import monotonic
from typing import Literal, TextIO, cast

import structlog
from pydantic import BaseModel
from structlog.stdlib import ProcessorFormatter
from structlog.typing import EventDict, FilteringBoundLogger, Processor, WrappedLogger

from tidegate.core.errors import InvalidArgument
from tidegate.core.telemetry.redaction import redact

LogFormat = Literal["console", "json"]
LogLevel = Literal["debug", "info", "warning", "error"]

_LEVELS: dict[str, int] = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
}
_HANDLER_NAME = "tidegate"
_lowest = [logging.WARNING]
"""The least severe level that is written; set by `configure_logs`."""


class LogSettings(BaseModel, frozen=True, extra="forbid"):
    """What is logged, and in which form."""

    format: LogFormat = "console"
    """`console` for people, `json` for machines: one object per line."""
    level: LogLevel = "info"
    """The least severe events that are written."""


def get_logger(name: str) -> FilteringBoundLogger:
    """The logger of one module; it obeys `configure_logs` whenever that is called."""
    return structlog.get_logger(module=name)


def is_enabled(level: LogLevel) -> bool:
    """Whether events of this level are written, for callers that would otherwise compute fields needlessly."""
    return _LEVELS[level] >= _lowest[0]


class _StandardError(io.TextIOBase):
    """The current standard error: the embedding program may replace `sys.stderr` and close the earlier one."""

    def write(self, text: str, /) -> int:
        return sys.stderr.write(text)

    def flush(self) -> None:
        sys.stderr.flush()

    def isatty(self) -> bool:
        return sys.stderr.isatty()


def configure_logs(
    format: LogFormat = "console",  # noqa: A002 - the word the setting has
    level: LogLevel = "info",
    *,
    stream: TextIO | None = None,
    without: Collection[str] = (),
) -> None:
    """Send all log lines to `stream` (standard error unless given), from `level` upwards. May be called again.

    The events `without` are left out.
    """
    if level not in _LEVELS:
        raise InvalidArgument("level", level, f"must be one of {', '.join(_LEVELS)}")
    if format not in ("console", "json"):
        raise InvalidArgument("format", format, "must be console or json")
    out = stream or cast("TextIO", _StandardError())
    render = _renderer(format, out)
    _configure_our_own(render, out, level, frozenset(without))
    _adopt_standard_logging(render, out, level)


def _configure_our_own(render: Processor, out: TextIO, level: LogLevel, without: frozenset[str]) -> None:
    def leave_out(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
        if event["event"] in without:
            raise structlog.DropEvent
        return event

    _lowest[0] = _LEVELS[level]
    structlog.configure(
        processors=[*([leave_out] if without else []), *_shared_processors(), _without_secrets, render],
        wrapper_class=structlog.make_filtering_bound_logger(_LEVELS[level]),
        logger_factory=structlog.WriteLoggerFactory(out),
        # A cached logger would keep writing to the stream of an earlier configuration.
        cache_logger_on_first_use=False,
    )


def _shared_processors() -> list[Processor]:
    return [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True, key="at"),
        structlog.processors.StackInfoRenderer(),
        structlog.processors.format_exc_info,
    ]


def _without_secrets(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Redact all fields. Runs after tracebacks became text, so that they are redacted too."""
    return {name: redact(value, name=name) for name, value in event.items()}


def _name_library(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    event["module"] = event["_record"].name
    return event


def _renderer(format: LogFormat, out: TextIO) -> Processor:  # noqa: A002
    if format == "json":
        return structlog.processors.JSONRenderer(serializer=json.dumps)
    return structlog.dev.ConsoleRenderer(
        colors=out.isatty(), timestamp_key="at", exception_formatter=structlog.dev.plain_traceback
    )


def _adopt_standard_logging(render: Processor, out: TextIO, level: LogLevel) -> None:
    """Install one handler at the root logger; records of libraries are written from `warning` upwards."""
    handler = logging.StreamHandler(out)
    handler.set_name(_HANDLER_NAME)
    handler.setFormatter(
        ProcessorFormatter(
            foreign_pre_chain=[_name_library, *_shared_processors()],
            processors=[ProcessorFormatter.remove_processors_meta, _without_secrets, render],
        )
    )
    root = logging.getLogger()
    # `configure_logs` may be called again. Handlers of the embedding program stay.
    for earlier in [each for each in root.handlers if each.get_name() == _HANDLER_NAME]:
        root.removeHandler(earlier)
    root.addHandler(handler)
    root.setLevel(max(_LEVELS[level], logging.WARNING))


# Without a configuration by the embedding program: warnings and errors on standard error, redacted.
if not structlog.is_configured():
    _configure_our_own(_renderer("console", sys.stderr), sys.stderr, "warning", frozenset())


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
