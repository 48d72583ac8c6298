"""What `tidegate doctor` found: one line per check, with the remedy where one is needed."""

from enum import StrEnum

import msgspec

from tidegate.core.errors import ServerRefused
from tidegate.core.telemetry.redaction import redact_text


class CheckResult(StrEnum):
    """How a check ended."""

    OK = "ok"
    ADVICE = "advice"  # it works, and could be better
    FAILED = "failed"


class Finding(msgspec.Struct, frozen=True):
    """One line of the report."""

    check: str
    verdict: CheckResult
    found: str
    remedy: str = ""


def failure(check: str, error: Exception, remedy: str) -> Finding:
    """A check that ended with an error; one of a server that refuses brings its own remedy."""
    if isinstance(error, ServerRefused):
        return Finding(check, CheckResult.FAILED, redact_text(f"{error.server}: {error.what}"), error.remedy)
    return Finding(check, CheckResult.FAILED, redact_text(str(error)) or type(error).__name__, remedy)
