"""Logs, metrics, and the catalogue of both."""

from tidegate.telemetry.logs import LogSettings, configure, get_logger
from tidegate.telemetry.redaction import redact, redact_text

__all__ = ["LogSettings", "configure", "get_logger", "redact", "redact_text"]
