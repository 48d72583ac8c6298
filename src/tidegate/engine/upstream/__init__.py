"""One HTTP client for all sources: a request in, an answer out, or an error that says whether the call may count."""

from typing import TYPE_CHECKING

from tidegate.core.exports import lazy_exports

if TYPE_CHECKING:
    from tidegate.engine.upstream.client import UpstreamClient
    from tidegate.engine.upstream.messages import (
        AddressRefused,
        Answer,
        ConnectFailed,
        ConnectionBroken,
        Head,
        Headers,
        Permit,
        Request,
        TimedOut,
        TooLarge,
        Truncated,
        Undecodable,
        UpstreamFailed,
    )
    from tidegate.engine.upstream.settings import UpstreamSettings

__all__ = [
    "AddressRefused",
    "Answer",
    "ConnectFailed",
    "ConnectionBroken",
    "Head",
    "Headers",
    "Permit",
    "Request",
    "TimedOut",
    "TooLarge",
    "Truncated",
    "Undecodable",
    "UpstreamClient",
    "UpstreamFailed",
    "UpstreamSettings",
]

__getattr__ = lazy_exports(
    __name__,
    {
        "tidegate.engine.upstream.client": "UpstreamClient",
        "tidegate.engine.upstream.messages": (
            "AddressRefused ConnectFailed ConnectionBroken TimedOut TooLarge Truncated Undecodable "
            "UpstreamFailed Answer Head Headers Permit Request"
        ),
        "tidegate.engine.upstream.settings": "UpstreamSettings",
    },
)
