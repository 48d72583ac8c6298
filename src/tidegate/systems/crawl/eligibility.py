"""Decides which identities may fetch a page, before one is assigned to it.

robots.txt can forbid a path to one User-Agent and allow it to another. A job that is enqueued names the identities that
are barred from it, by the rules that this process last knew. If it knows none, or outdated ones, the caller reads
robots.txt and gives the job back (`PoliteCaller`). Both use the same rules, so a returned job is not assigned to the
same identity again.
"""

from collections.abc import Sequence
from typing import Protocol

from tidegate.engine.job_store import StoredJob
from tidegate.engine.source import JobSpec
from tidegate.systems.crawl.host_registry import POOL
from tidegate.systems.crawl.identities import IdentityRegistry


class AddressedJobs(Protocol):
    """A source that knows the URL of each of its jobs."""

    def robots_url(self, spec: JobSpec) -> str | None:
        """The URL that a job calls; None if robots.txt does not apply."""
        ...


class Eligibility:
    """Computes the identities that must not make the call of a job."""

    def __init__(self, source: AddressedJobs, identities: IdentityRegistry) -> None:
        self._source, self._identities = source, identities

    def barred(self, job: StoredJob) -> Sequence[str]:
        """The identities for which robots.txt forbids the page of a job; none if it forbids it to all of them."""
        if job.pool != POOL:
            return ()
        known, agents = self._identities.hosts.last_known(job.spec.bucket), self._identities.agents
        names = set(agents.values())
        # In most cases the rules treat all identities alike, and no URL has to be built.
        if known is None or known.rules is None or not known.rules.tells_apart(names):
            return ()
        url = self._source.robots_url(job.spec)
        forbidden = frozenset[str]() if url is None else known.forbidden(url, names)
        # Forbidden to all: the job must reach a caller, which withholds the page with the reason.
        if len(forbidden) == len(names):
            return ()
        return [credential for credential, agent in agents.items() if agent in forbidden]
