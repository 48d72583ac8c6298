"""Rows of hosts that are crawled. Every function except the first ones works in the caller's transaction."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any
from urllib.parse import urlsplit

import msgspec
from sqlalchemy import or_, select, update

from tidegate.core.arguments import require_name
from tidegate.core.errors import InvalidArgument, NotFound
from tidegate.core.telemetry.redaction import fit_to_keep
from tidegate.engine.upstream.messages import shown
from tidegate.storage.sql import Transaction
from tidegate.systems.crawl.host_tables import LONGEST_HOST, LONGEST_REASON, crawl_hosts

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
