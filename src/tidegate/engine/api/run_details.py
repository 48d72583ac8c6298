"""Details of a run for HTTP and the dashboard, and subjects in HTTP requests.

Details are one SQL read for the progress of the run, and the gate's status for its waits. The source decides the form
of subjects, as on the command line.
"""

import asyncio
from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from tidegate.core.errors import InvalidArgument, TidegateError, Unavailable
from tidegate.core.telemetry.logs import get_logger
from tidegate.engine import runs
from tidegate.engine.collection import Collection
from tidegate.engine.credentials import Credential
from tidegate.engine.lifecycle import OPEN_RUNS
from tidegate.engine.reports.progress import Failure, KindProgress, failures_of, kinds_of, unavailable_of
from tidegate.engine.runs import Run
from tidegate.engine.source import Subject
from tidegate.engine.source_plugin import SourcePlugin
from tidegate.http.dispatch import RequestInput
from tidegate.http.problems import ProblemType, RequestFailed
from tidegate.primitives.gate import CredentialStatus, PoolStatus
from tidegate.runtime.outage import Outage
from tidegate.storage.sql import Transaction

log = get_logger(__name__)

_GATE_WITHIN_S = 2.0
_MOST_FAILURES = 100

Id = Annotated[int, Meta(ge=1, le=2**63 - 1)]
Limit = Annotated[int, Meta(ge=1, le=500)]


class Wait(msgspec.Struct, frozen=True, kw_only=True):
    """A reason why jobs of a run wait."""

    credential: str | None
    """Names of the credentials that share the allowance; null if no credential serves the run."""
    bucket: str
    reason: str
    """blocked, retired, concurrency, minute, probing, exhausted, or no_credential."""
    opens_at: datetime | None = None
    """When the next call can be made; null if that is unknown or depends on a call in flight."""


class RunDetail(Run, frozen=True, kw_only=True):
    """A run with the progress of each kind of job, its failed jobs, and what it waits for."""

    kinds: list[KindProgress]
    failures: list[Failure]
    """The first 100 failed jobs with their errors."""
    unavailable: list[Failure]
    """The first 100 jobs for items that the upstream withholds, such as a blocked repository, with the reason. They are
    not failures: the run counts them as succeeded."""
    waits: list[Wait] | None
    """Empty if the run can continue; null if the gate could not be asked."""


class RunDetailReader:
    """Reads runs with their details."""

    def __init__(self, collection: Collection) -> None:
        self._collection, self._database = collection, collection.parts.database
        self._outage = Outage("http.gate")

    async def detail(self, run_id: int) -> RunDetail:
        """Return the details of a run. Raises `NotFound` if there is none."""
        run, kinds, failures, unavailable = await self._database.read(_read, run_id)
        waits = await self._waits(run) if run.status in OPEN_RUNS else []
        return RunDetail(
            **msgspec.structs.asdict(run), kinds=kinds, failures=failures, unavailable=unavailable, waits=waits
        )

    async def _waits(self, run: Run) -> list[Wait] | None:
        try:
            async with asyncio.timeout(_GATE_WITHIN_S):
                pool = await self._collection.status(run.pool)
                known = await self._collection.list_credentials() if any(pool.waiting.values()) else []
        except Unavailable as error:
            self._outage.note(error)
            return None
        except (TidegateError, TimeoutError) as error:
            log.warning("http.gate_unknown", pool=run.pool, error=str(error) or "no answer in time")
            return None
        return waits_of(pool, known, self._database.clock.now())


def waits_of(pool: PoolStatus, known: Sequence[Credential], now: datetime) -> list[Wait]:
    """Why the jobs of a pool wait. Empty for a bucket in which a call can be made now."""
    found: list[Wait] = []
    names: defaultdict[str, list[str]] = defaultdict(list)
    for credential in known:
        names[credential.allowance].append(credential.name)
    for bucket in sorted(name for name, jobs in pool.waiting.items() if jobs):
        waits = [_wait(one, ", ".join(names[one.name]) or one.name, bucket, now) for one in pool.credentials]
        if not pool.credentials:
            found.append(Wait(credential=None, bucket=bucket, reason="no_credential"))
        elif None not in waits:
            found += [wait for wait in waits if wait is not None]
    return found


def _wait(one: CredentialStatus, label: str, bucket: str, now: datetime) -> Wait | None:
    """Why a credential cannot make a call now; None if it can."""
    if one.retired:
        return Wait(credential=label, bucket=bucket, reason="retired")
    found = next((each for each in one.buckets if each.name == bucket), None)
    if found is None or found.reason is None:
        return None
    opens_at = None if found.opens_in_ms is None else moment(now, found.opens_in_ms)
    return Wait(credential=label, bucket=bucket, reason=found.reason, opens_at=opens_at)


def moment(now: datetime, in_ms: float) -> datetime:
    """The time in `in_ms` milliseconds, rounded up to whole seconds.

    Rounding keeps the value equal between reads, so that an unchanged run is not reported as changed.
    """
    exact = now + timedelta(milliseconds=in_ms)
    whole = exact.replace(microsecond=0)
    return whole if exact == whole else whole + timedelta(seconds=1)


def _read(tx: Transaction, run_id: int) -> tuple[Run, list[KindProgress], list[Failure], list[Failure]]:
    run, kinds = runs.get(tx, run_id), kinds_of(tx, [run_id])
    return run, kinds, failures_of(tx, [run_id], _MOST_FAILURES), unavailable_of(tx, [run_id], _MOST_FAILURES)


Pattern = Annotated[str, Meta(min_length=1, max_length=200, extra_json_schema={"pattern": "^[ -~]+$"})]
SourceName = Annotated[str, Meta(min_length=1, max_length=40, extra_json_schema={"format": "source-name"})]
SubjectText = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=300,
        description="What is collected, in the form of the source. GitHub has: a login, with or without an @ before "
        "it; a repository (`octocat/hello-world`); an organization (`org:github`); a topic (`topic:crdt`); a search "
        "(`search:language:rust stars:>1000`); or the address of a user, an organization or a repository.",
        examples=["octocat", "octocat/hello-world", "org:github", "topic:crdt"],
        extra_json_schema={"format": "subject"},
    ),
]


def read_subject(
    plugin: SourcePlugin, text: str, options: Mapping[str, Any] | None = None, *, field: str = "login"
) -> Subject:
    """Parse a subject of a source. Raises a problem that names the field if it is invalid."""
    try:
        return plugin.subject(text, options)
    except InvalidArgument as error:
        raise RequestFailed(ProblemType.INVALID, str(error), field=field) from None


class Selected(RequestInput, frozen=True, kw_only=True):
    """Selects the repositories to collect. Other repositories of the subject are only listed."""

    repos: Annotated[tuple[Pattern, ...], Meta(max_length=100)] = ()
    """Only repositories that match one of these patterns (`docs-*`, `octocat/hello*`)."""
    exclude: Annotated[tuple[Pattern, ...], Meta(max_length=100)] = ()
    """No repositories that match one of these patterns."""
    archived: bool | None = None
    """True: only archived repositories. False: only others."""
    forks: bool | None = None
    """True: only forks. False: only others."""

    @property
    def selection(self) -> dict[str, Any]:
        """The selection of the request as options of a run."""
        patterns = {"repos": list(self.repos), "exclude": list(self.exclude)}
        switches = {"archived": self.archived, "forks": self.forks}
        return {name: given for name, given in patterns.items() if given} | {
            name: value for name, value in switches.items() if value is not None
        }
