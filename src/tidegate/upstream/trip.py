"""One request on its way: where it is, what is known so far, and what an error means at this point."""

from collections.abc import Awaitable, Callable

import aiohttp
from aiohttp.client_reqrep import ClientRequest, ClientResponse
from aiohttp.connector import Connection
from yarl import URL

from tidegate.telemetry.redaction import is_secret_name, redact_text
from tidegate.upstream.decoding import BadEncoding, BodyCutShort, BodyTooLarge
from tidegate.upstream.errors import (
    ConnectFailed,
    ConnectionBroken,
    Phase,
    RedirectRefused,
    TimedOut,
    TooLarge,
    Truncated,
    Undecodable,
    UpstreamFailed,
)
from tidegate.upstream.messages import Head, Redirect, Request, shown

_FOLLOWED = frozenset({301, 302, 303, 307, 308})
_SAFE_METHODS = frozenset({"GET", "HEAD"})

FAILURES = (aiohttp.ClientError, OSError, BadEncoding, BodyCutShort, BodyTooLarge)
"""Everything that `Trip.explain` explains. A timeout is an OSError."""


class NotedRequest(ClientRequest):
    """Knows whether its first byte may have left."""

    sent = False

    async def send(self, conn: Connection) -> ClientResponse:
        """Send it."""
        self.sent = True
        return await super().send(conn)


class _BrokeBeforeAnswer(aiohttp.ClientError):
    """In the place of errors after which aiohttp would send the request once more, without a permit for it."""


class Trip:
    """A request with all its redirects."""

    def __init__(self, request: Request, *, most_redirects: int) -> None:
        self.request = request
        self.url = URL(request.url, encoded=True)
        self.headers = dict(request.headers)
        self.redirects: tuple[Redirect, ...] = ()
        self.head: Head | None = None
        self._most_redirects = most_redirects
        self._leg: ClientRequest | None = None

    async def send_once(
        self, leg: ClientRequest, send: Callable[[ClientRequest], Awaitable[ClientResponse]]
    ) -> ClientResponse:
        """A middleware of aiohttp's: note what is sent, and see that it is sent no more than once."""
        self._leg = leg
        try:
            return await send(leg)
        except aiohttp.ClientConnectorError:
            raise
        except (aiohttp.ClientOSError, aiohttp.ServerDisconnectedError):
            raise _BrokeBeforeAnswer from None

    def turn(self, head: Head) -> bool:
        """Whether this answer sends us elsewhere; then the next leg leads there.

        Raises `RedirectRefused` if we do not go there. Whatever is secret stays with the host it was meant for.
        """
        self.head = head
        if not self.request.follows_redirects:
            return False
        location = head.headers.get("Location")
        if head.status not in _FOLLOWED or location is None or self.request.method not in _SAFE_METHODS:
            return False
        target = self._target(location)
        if len(self.redirects) == self._most_redirects:
            raise self._failed(RedirectRefused, f"redirected more than {self._most_redirects} times")
        if target.origin() != self.url.origin():
            self.headers = {name: value for name, value in self.headers.items() if not is_secret_name(name)}
        self.redirects += (Redirect(head.status, str(target)),)
        self.url, self.head, self._leg = target, None, None
        return True

    def explain(self, error: Exception) -> UpstreamFailed:
        """What `error` means, given how far we had come."""
        match error:
            case aiohttp.ClientConnectorError():
                return self._failed(ConnectFailed, redact_text(f"no connection: {error}"))
            case TimeoutError():
                return TimedOut(
                    self.request, self._phase, was_sent=self._was_sent, head=self.head, redirects=self.redirects
                )
            case BodyTooLarge():
                return self._failed(TooLarge, "the body is larger than `largest_body`")
            case BadEncoding():
                return self._failed(Undecodable, str(error))
            case aiohttp.ClientResponseError() if self.head is None:
                # Its text quotes what came, and it knows our headers: neither is shown.
                return self._failed(Undecodable, "what came is not HTTP")
            case _ if self.head is None:
                return self._failed(ConnectionBroken, "the connection ended before an answer came")
            case _:
                return self._failed(Truncated, "the body ended too early")

    @property
    def _was_sent(self) -> bool | None:
        if self.redirects or self.head is not None:
            return True
        return None if isinstance(self._leg, NotedRequest) and self._leg.sent else False

    @property
    def _phase(self) -> Phase:
        if self.head is not None:
            return "body"
        return "answer" if isinstance(self._leg, NotedRequest) and self._leg.sent else "connect"

    def _target(self, location: str) -> URL:
        try:
            # An address that is encoded already is taken as it is; others are encoded first.
            target = self.url.join(URL(location, encoded=location.isascii() and location.isprintable()))
            if target.scheme not in ("http", "https") or not target.host or target.user is not None:
                raise ValueError
        except ValueError:
            raise self._failed(RedirectRefused, f"redirected to {shown(location)}, which is no web address") from None
        return target.with_fragment(None)

    def _failed(self, kind: type[UpstreamFailed], reason: str) -> UpstreamFailed:
        return kind(self.request, reason, was_sent=self._was_sent, head=self.head, redirects=self.redirects)
