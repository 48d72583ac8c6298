"""One HTTP client for all sources: a request in, an answer out, or an error that says whether the call may count."""

from tidegate.upstream.client import UpstreamClient
from tidegate.upstream.errors import (
    ConnectFailed,
    ConnectionBroken,
    RedirectRefused,
    TimedOut,
    TooLarge,
    Truncated,
    Undecodable,
    UpstreamFailed,
)
from tidegate.upstream.messages import Answer, Head, Headers, Redirect, Request
from tidegate.upstream.settings import UpstreamSettings

__all__ = [
    "Answer",
    "ConnectFailed",
    "ConnectionBroken",
    "Head",
    "Headers",
    "Redirect",
    "RedirectRefused",
    "Request",
    "TimedOut",
    "TooLarge",
    "Truncated",
    "Undecodable",
    "UpstreamClient",
    "UpstreamFailed",
    "UpstreamSettings",
]
