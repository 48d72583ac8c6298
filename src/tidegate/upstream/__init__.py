"""One HTTP client for all sources: a request in, an answer out, or an error that says whether the call may count."""

from tidegate.upstream.client import UpstreamClient
from tidegate.upstream.errors import (
    ConnectFailed,
    ConnectionBroken,
    TimedOut,
    TooLarge,
    Truncated,
    Undecodable,
    UpstreamFailed,
)
from tidegate.upstream.messages import Answer, Head, Headers, Permit, Request
from tidegate.upstream.settings import UpstreamSettings

__all__ = [
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
