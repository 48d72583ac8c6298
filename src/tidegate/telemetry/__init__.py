"""Logs, metrics, and the catalogue of both."""

from typing import TYPE_CHECKING

from tidegate.kernel.exports import lazy_exports

if TYPE_CHECKING:
    from tidegate.telemetry.logs import LogSettings, configure, get_logger
    from tidegate.telemetry.redaction import redact, redact_text

__all__ = ["LogSettings", "configure", "get_logger", "redact", "redact_text"]

__getattr__ = lazy_exports(
    __name__,
    {
        "tidegate.telemetry.logs": "LogSettings configure get_logger",
        "tidegate.telemetry.redaction": "redact redact_text",
    },
)
