"""Findings of `tidegate doctor`: one line per check, with advice on problems."""

from enum import StrEnum

import msgspec

from tidegate.core.errors import ServerRefused
from tidegate.core.telemetry.redaction import redact_text


class CheckResult(StrEnum):
    """The result of a check."""

    OK = "ok"
    ADVICE = "advice"  # works, but can be improved
    FAILED = "failed"


class Finding(msgspec.Struct, frozen=True):
    """One line of the report."""

    check: str
    verdict: CheckResult
    found: str
    remedy: str = ""


def failure(check: str, error: Exception, remedy: str) -> Finding:
    """The finding for an error; some errors have their own remedy."""
    if isinstance(error, ServerRefused):
        return Finding(check, CheckResult.FAILED, redact_text(f"{error.server}: {error.what}"), error.remedy)
    return Finding(check, CheckResult.FAILED, redact_text(str(error)) or type(error).__name__, remedy)


def ask_about(variable: str, url: str | None) -> str:
    """The first thing to check: the configured address, or the data folder of the embedded server."""
    if url is None:
        return "Check that the data folder is writable, or set another one in TIDEGATE_DATA_DIR"
    return f"Check that it is running, and that {variable} is correct"
