"""What keeps a crawl: a host that wants to be left alone or does not answer, identities that all rest."""

from datetime import datetime

from tidegate.cli.wording import clock
from tidegate.storage.sql import Transaction
from tidegate.systems.crawl import hosts
from tidegate.systems.crawl.health_records import HostHealth
from tidegate.systems.crawl.hosts import Host
from tidegate.systems.crawl.identities import Identity, listed


def wait_of(tx: Transaction, host: str) -> str | None:
    """Why nobody calls a host now, until when, and what can be done; None where nothing is known to be in the way."""
    found = hosts.find(tx, host)
    if found is not None and found.rests_until is not None and found.rests_until > tx.now:
        return _of_host(found, found.rests_until, tx.now)
    used = [one for one in listed(tx) if one.enabled]
    if not used:
        return "all identities are disabled; tidegate crawl identities enable NAME lets one call again"
    rests = [_rest(one, host, tx.now) for one in used]
    resting = [one for one in rests if one is not None and one.resting_until is not None]
    if len(resting) < len(used):
        return None
    first = min(resting, key=lambda one: one.resting_until or tx.now)
    who = "the only identity rests" if len(used) == 1 else f"all {len(used)} identities rest"
    until = clock(first.resting_until or tx.now, tx.now)
    return (
        f"{host}: {who}, until {until}: {first.last_reason}; more identities would help, or fewer calls (crawl.delay)"
    )


def _of_host(host: Host, until: datetime, now: datetime) -> str:
    again = clock(until, now)
    if host.failures:  # since robots.txt was last read
        return f"{host.host}: robots.txt cannot be read: {host.reason}. Is --url right? It is asked again at {again}"
    return f"{host.host} is left alone until {again}: {host.reason}"


def _rest(one: Identity, host: str, now: datetime) -> HostHealth | None:
    """Its rest at this host, if it rests."""
    for health in one.health:
        if health.host == host and health.resting_until is not None and health.resting_until > now:
            return health
    return None
