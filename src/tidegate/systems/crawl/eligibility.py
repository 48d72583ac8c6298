"""Which identities may fetch a page, decided before one is assigned to it.

robots.txt may forbid a path to one User-Agent and allow it to another. A job that is offered to the gate names the
identities that are barred from it, by what this process last knew of the host. Where it knows nothing, or that is out
of date, the caller finds out and gives the job back (`PoliteCaller`). Both decide by the same rules, so a job that was
given back is not assigned to the same identity again.
"""

from collections.abc import Sequence
from typing import Protocol

from tidegate.engine.job_store import StoredJob
from tidegate.engine.source import JobSpec
from tidegate.systems.crawl.host_book import POOL
from tidegate.systems.crawl.identities import IdentityBook


class Addressed(Protocol):
    """A source that knows the address of each of its jobs."""

    def robots_url(self, spec: JobSpec) -> str | None:
        """The address that a job calls; None where robots.txt is not asked."""
        ...


class Eligibility:
    """Tells the gate which identities must not make a call."""

    def __init__(self, source: Addressed, identities: IdentityBook) -> None:
        self._source, self._identities = source, identities

    def barred(self, job: StoredJob) -> Sequence[str]:
        """The identities that robots.txt forbids the page of a job; none where it forbids it to all of them."""
        if job.pool != POOL:
            return ()
        known, agents = self._identities.hosts.last_known(job.spec.bucket), self._identities.agents
        names = set(agents.values())
        if known is None or known.rules is None or not known.rules.tells_apart(names):
            return ()
        url = self._source.robots_url(job.spec)
        forbidden = frozenset[str]() if url is None else known.forbidden(url, names)
        if len(forbidden) == len(names):
            return ()
        return [credential for credential, agent in agents.items() if agent in forbidden]
