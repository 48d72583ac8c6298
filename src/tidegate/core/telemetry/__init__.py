"""Logs, metrics, and the catalogue of both."""

from typing import TYPE_CHECKING

from tidegate.core.exports import lazy_exports

if TYPE_CHECKING:
    from tidegate.core.telemetry.logs import LogSettings, configure_logs, get_logger
    from tidegate.core.telemetry.redaction import redact, redact_text

__all__ = ["LogSettings", "configure_logs", "get_logger", "redact", "redact_text"]

__getattr__ = lazy_exports(
    __name__,
    {
        "tidegate.core.telemetry.logs": "LogSettings configure_logs get_logger",
        "tidegate.core.telemetry.redaction": "redact redact_text",
    },
)
