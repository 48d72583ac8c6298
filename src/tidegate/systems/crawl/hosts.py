"""Tables of hosts, identities and their health, and the rows of hosts that are crawled.

Every function except the first ones works in the caller's transaction.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any
from urllib.parse import urlsplit

import msgspec
from sqlalchemy import BigInteger, Boolean, Column, Double, Integer, Table, Text, or_, select, update

from tidegate.core.arguments import require_name
from tidegate.core.errors import InvalidArgument, NotFound
from tidegate.core.telemetry.redaction import fit_to_keep
from tidegate.engine.upstream.messages import shown
from tidegate.storage.sql import Transaction
from tidegate.storage.sql.schema import TABLE_OPTIONS, Json, UtcDateTime, exact_text, metadata

LONGEST_HOST = 255
LONGEST_REASON = 500

crawl_hosts = Table(
    "crawl_hosts",
    metadata,
    Column("host", exact_text(LONGEST_HOST), primary_key=True),
    Column("robots_state", exact_text(16), nullable=False),
    # The text itself, where there is one.
    Column("robots", Json),
    # When it was read, or found to be missing; NULL: never, or it is to be read again.
    Column("read_at", UtcDateTime),
    # The URL to which it was redirected, and the number of redirects, while it is being looked up.
    Column("robots_url", Text),
    Column("redirects", Integer, nullable=False),
    # Failed attempts, and refused ones, since it was last known.
    Column("failures", Integer, nullable=False),
    Column("refusals", Integer, nullable=False),
    # The longest Crawl-delay among the User-Agents that are in use.
    Column("crawl_delay_ms", BigInteger, nullable=False),
    # It must not be called before this time.
    Column("rests_until", UtcDateTime),
    Column("reason", exact_text(LONGEST_REASON)),
    Column("changed_at", UtcDateTime, nullable=False),
    **TABLE_OPTIONS,
)
"""Hosts that are crawled, and the state of their robots.txt. Restores a gate that lost its data."""

crawl_identities = Table(
    "crawl_identities",
    metadata,
    Column("name", exact_text(80), primary_key=True),
    # Encrypted: all header lines that go with it, the User-Agent among them.
    Column("headers", Text, nullable=False),
    Column("key_id", exact_text(16), nullable=False),
    Column("enabled", Boolean, nullable=False),
    Column("created_at", UtcDateTime, nullable=False),
    Column("changed_at", UtcDateTime, nullable=False),
    **TABLE_OPTIONS,
)
"""Identities with which hosts are called."""

crawl_identity_health = Table(
    "crawl_identity_health",
    metadata,
    # The built-in identity has no row among the identities, and can be refused like any other.
    Column("identity", exact_text(80), primary_key=True),
    Column("host", exact_text(LONGEST_HOST), primary_key=True),
    Column("score", Double, nullable=False),
    Column("resting_until", UtcDateTime),
    # Rests in close succession: each one of unspecified length is twice as long as the previous one.
    Column("rests", Integer, nullable=False),
    Column("refusals", BigInteger, nullable=False),
    Column("last_reason", exact_text(LONGEST_REASON)),
    Column("updated_at", UtcDateTime, nullable=False),
    **TABLE_OPTIONS,
)
"""The health of an identity at a host that has refused it: a copy of what the gate knows."""


_AFTER_SCHEME = len("https://")
_DEFAULT_PORTS = {"http": 80, "https": 443}
_c = crawl_hosts.c


class Host(msgspec.Struct, frozen=True, kw_only=True):
    """A host and the state of its robots.txt."""

    host: str
    robots_state: str
    robots: str | None = None
    read_at: datetime | None = None
    robots_url: str | None = None
    redirects: int = 0
    failures: int = 0
    refusals: int = 0
    crawl_delay_ms: int = 0
    rests_until: datetime | None = None
    reason: str | None = None
    changed_at: datetime

    @property
    def crawl_delay(self) -> timedelta:
        """The longest delay that robots.txt asks any User-Agent in use for."""
        return timedelta(milliseconds=self.crawl_delay_ms)


def host_of(url: str) -> str:
    """The name of a URL's host in this system: lower case, without the default port."""
    # Cut the path off before the cached part: URLs differ, hosts repeat.
    end = url.find("/", _AFTER_SCHEME)
    return _host_at(url if end < 0 else url[:end])


@lru_cache(maxsize=1024)
def _host_at(url: str) -> str:
    try:
        parts = urlsplit(url)
        name, port = parts.hostname, parts.port
    except ValueError:
        name, port, parts = None, None, urlsplit("")
    if parts.scheme not in _DEFAULT_PORTS or not name:
        raise InvalidArgument("url", shown(url), "must begin with http:// or https:// and name a host")
    name = f"[{name}]" if ":" in name else name
    return require_host(name if port in (None, _DEFAULT_PORTS[parts.scheme]) else f"{name}:{port}")


def require_host(host: str) -> str:
    """Return a host name; raises `InvalidArgument` if it is too long."""
    require_name("host", host)
    if len(host) > LONGEST_HOST:
        raise InvalidArgument("host", host[:32] + "…", f"must have at most {LONGEST_HOST} characters")
    return host


def register(tx: Transaction, host: str) -> None:
    """Insert the row of a host unless it exists."""
    row: dict[str, Any] = {
        "host": host,
        "robots_state": "unknown",
        "redirects": 0,
        "failures": 0,
        "refusals": 0,
        "crawl_delay_ms": 0,
        "changed_at": tx.now,
    }
    tx.insert_many(crawl_hosts, [row], skip_existing=True)


def find(tx: Transaction, host: str) -> Host | None:
    """Return one host, or None."""
    row = tx.execute(select(crawl_hosts).where(_c.host == host)).first()
    return None if row is None else msgspec.convert(row, Host, from_attributes=True)


def get(tx: Transaction, host: str) -> Host:
    """Return one host; raises `NotFound`."""
    found = find(tx, host)
    if found is None:
        raise NotFound("host", host)
    return found


def everything(tx: Transaction) -> Sequence[Host]:
    """All hosts, by name."""
    rows = tx.execute(select(crawl_hosts).order_by(_c.host))
    return [msgspec.convert(row, Host, from_attributes=True) for row in rows]


def write(tx: Transaction, host: str, values: dict[str, Any]) -> None:
    """Update the row of a host."""
    if values.get("reason") is not None:
        values = values | {"reason": fit_to_keep(values["reason"], most=LONGEST_REASON)}
    tx.execute(update(crawl_hosts).where(_c.host == host).values(values | {"changed_at": tx.now}))


def rest(tx: Transaction, host: str, until: datetime, reason: str) -> None:
    """Block calls to a host until a time; a later end of the rest is kept."""
    # The condition is part of the statement: two processes that write at once keep the later end.
    is_longer = or_(_c.rests_until.is_(None), _c.rests_until < until)
    values = {"rests_until": until, "reason": fit_to_keep(reason, most=LONGEST_REASON), "changed_at": tx.now}
    tx.execute(update(crawl_hosts).where(_c.host == host, is_longer).values(values))
