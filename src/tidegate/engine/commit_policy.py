"""What the sources of a process want of every round: which jobs plan, and who writes what the engine does not know."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Protocol

import msgspec

from tidegate.engine.job_results import JobResult
from tidegate.engine.job_store import Ending
from tidegate.engine.settings import CollectSettings
from tidegate.storage.sql import Transaction

Planning = Mapping[str, frozenset[str]]
"""Each source's kinds of jobs that plan."""


class Writer(Protocol):
    """Writes what a source's answers brought besides documents, in the transaction that ends their jobs."""

    def write(self, tx: Transaction, endings: Sequence[Ending]) -> None:
        """All endings of the source in this round: those that succeeded, those that did not, and those to be tried
        again, each with its `effects` and with the `credential` that made the call.

        May be called again for the same ones, in a transaction of its own, where the first was rolled back. Where it
        raises, each is written alone, and the bad one is tried again as if its call had failed.
        """
        ...


class CommitPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """What is wanted of every round."""

    planning: Planning = {}
    writers: Mapping[str, Writer] = {}
    """By the name of their source."""
    recorded: frozenset[str] = frozenset()
    """Sources of which every execution of a job is recorded."""
    max_attempts: int = CollectSettings().max_attempts
    """How often follow-ups are tried."""


def write_effects(tx: Transaction, finished: Sequence[JobResult], writers: Mapping[str, Writer]) -> None:
    """Have each source that has a writer write its part; results that have to do without it are left out."""
    by_source: defaultdict[str, list[Ending]] = defaultdict(list)
    for one in finished:
        if one.has_writer and one.ending.claim.source in writers:
            by_source[one.ending.claim.source].append(one.ending)
    for source, endings in by_source.items():
        writers[source].write(tx, endings)
