"""Explains why a crawl waits: the host is paused or unreachable, or all identities are paused."""

from datetime import datetime

from tidegate.cli.wording import clock
from tidegate.storage.sql import Transaction
from tidegate.systems.crawl import hosts
from tidegate.systems.crawl.health_records import HostHealth
from tidegate.systems.crawl.hosts import Host
from tidegate.systems.crawl.identities import Identity, listed


def wait_of(tx: Transaction, host: str) -> str | None:
    """Why a host is not called now, until when, and what to do; None if no reason is known."""
    found = hosts.find(tx, host)
    if found is not None and found.rests_until is not None and found.rests_until > tx.now:
        return _of_host(found, found.rests_until, tx.now)
    used = [one for one in listed(tx) if one.enabled]
    if not used:
        return "all identities are disabled; enable one: tidegate crawl identities enable NAME"
    rests = [_rest(one, host, tx.now) for one in used]
    resting = [one for one in rests if one is not None and one.resting_until is not None]
    if len(resting) < len(used):
        return None
    first = min(resting, key=lambda one: one.resting_until or tx.now)
    paused = "the only identity is paused" if len(used) == 1 else f"all {len(used)} identities are paused"
    until = clock(first.resting_until or tx.now, tx.now)
    return f"{host}: {paused} until {until}: {first.last_reason}; add identities, or raise crawl.delay"


def _of_host(host: Host, until: datetime, now: datetime) -> str:
    again = clock(until, now)
    if host.failures:  # attempts to read robots.txt that failed in a row
        return f"{host.host}: robots.txt cannot be read: {host.reason}. Check --url. The next attempt is at {again}"
    return f"{host.host} is paused until {again}: {host.reason}"


def _rest(one: Identity, host: str, now: datetime) -> HostHealth | None:
    """The health of an identity that is paused at this host; otherwise None."""
    for health in one.health:
        if health.host == host and health.resting_until is not None and health.resting_until > now:
            return health
    return None
