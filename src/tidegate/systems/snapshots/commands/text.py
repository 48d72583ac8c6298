"""Functions that the commands of snapshots share: open snapshots, parse arguments, and format results as text."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import msgspec

from tidegate.cli.wording import clock, number, span
from tidegate.core.clock import from_ms
from tidegate.core.errors import InvalidArgument

if TYPE_CHECKING:
    from tidegate.primitives.coalescer import Outcome
    from tidegate.settings import Settings
    from tidegate.systems.snapshots.dead_letters import RefreshDeadLetter
    from tidegate.systems.snapshots.model import SnapshotSubject
    from tidegate.systems.snapshots.reads import SnapshotAnswer
    from tidegate.systems.snapshots.service import Snapshots
    from tidegate.systems.snapshots.store import RefreshStatus

NO_WORKER = "no worker is running: start `tidegate up`"


@asynccontextmanager
async def opened(settings: Settings) -> AsyncGenerator[Snapshots]:
    """Open the snapshots for the length of a block. Raises `InvalidSettings` if no kind is configured."""
    from tidegate.connections import open_context
    from tidegate.systems.snapshots.kinds import require_kinds
    from tidegate.systems.snapshots.service import open_snapshots

    kinds = require_kinds(settings)
    async with open_context(settings) as context, open_snapshots(context, kinds) as snapshots:
        yield snapshots


def parse_subject(settings: Settings, text: str) -> SnapshotSubject:
    """Read a subject such as `character/4711`. Raises `InvalidArgument`, which names the configured kinds."""
    from tidegate.systems.snapshots.kinds import require_kinds
    from tidegate.systems.snapshots.model import SnapshotSubject

    known = sorted(kind.name for kind in require_kinds(settings))
    kind, slash, key = text.partition("/")
    if not slash or not key:
        raise InvalidArgument("subject", text[:80], f"must be a kind and a key, such as {known[0]}/4711")
    if kind not in known:
        raise InvalidArgument("subject", text[:80], f"no kind {kind!r}; the configured kinds are {', '.join(known)}")
    return SnapshotSubject(kind, key)


def snapshot_line(subject: str, answer: SnapshotAnswer) -> str:
    """Return freshness, size and age of a snapshot on one line."""
    now, kept = datetime.now(UTC), answer.kept
    facts = [f"{number(kept.body_size)} bytes" if kept.body_size else _absence_reason(answer)]
    facts += [f"{word} {_moment(ms, now)}" for word, ms in (("changed", kept.updated_ms),) if ms and kept.body_size]
    facts += [f"checked {_moment(kept.checked_ms, now)}"] if kept.checked_ms else []
    if (failed := kept.failed) is not None:
        facts.append(f"a refresh failed {span((now - failed.failed_at).total_seconds())} ago: {failed.reason}")
    return f"{subject}: {answer.freshness}: {'; '.join(facts)}"


def refresh_lines(
    answer: SnapshotAnswer, status: RefreshStatus | None, *, has_workers: bool | None = None
) -> Iterator[str]:
    """Yield whether a refresh is queued, and what is wrong with the last one."""
    from tidegate.systems.snapshots.reads import Freshness

    if answer.update_queued:
        wait_ms = answer.estimated_wait_ms
        yield "a refresh is queued" + (
            f", but {NO_WORKER}" if has_workers is False else f", about {wait_ms / 1000:.1f} s" if wait_ms else ""
        )
    elif answer.freshness is not Freshness.FRESH and answer.kept.missing_ms is None:
        yield "no refresh is queued"
    if status is not None:
        yield status_line(status)


def status_line(status: RefreshStatus) -> str:
    """Return why a refresh did not succeed, and what to do."""
    cause = f"{status.reason}, {status.message}{_api_key_hint(status)}"
    if not status.has_failed:
        return f"the upstream fails; the call is retried ({number(status.tries)} attempts so far): {cause}"
    advice = "`tidegate snapshots refresh` retries it, `tidegate snapshots dead list` shows all failed refreshes"
    return f"the last refresh failed: {cause}; {advice}"


def _api_key_hint(status: RefreshStatus) -> str:
    if not status.message.endswith((" 401", " 403")):
        return ""
    return " (check the API key; for the game it is TIDEGATE_SNAPSHOTS__GAME__API_KEY)"


def outcome_name(outcome: Outcome) -> str:
    """Return the name of an outcome, as in the HTTP API."""
    from tidegate.primitives.coalescer import AlreadyProcessing

    return "already_processing" if isinstance(outcome, AlreadyProcessing) else "queued"


def letter_line(letter: RefreshDeadLetter) -> str:
    """Return a dead letter on one line."""
    update = letter.update
    return f"{letter.id}  {update.failed_at:%Y-%m-%d %H:%M:%S}  {update.subject_id}  {update.reason}  {update.message}"


def letter_as_json(letter: RefreshDeadLetter) -> bytes:
    """Return a dead letter with its event, as JSON."""
    return msgspec.json.encode({"id": letter.id, **msgspec.json.decode(letter.update.encode())})


def _absence_reason(answer: SnapshotAnswer) -> str:
    if answer.kept.missing_ms is not None:
        return "the upstream has no such subject"
    return "no snapshot yet"


def _moment(ms: int, now: datetime) -> str:
    moment = from_ms(ms)
    return f"{clock(moment, now)}, {span((now - moment).total_seconds())} ago"
