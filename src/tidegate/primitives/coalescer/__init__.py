"""Merges concurrent requests for the same work: one piece of work per subject at a time.

Versions distinguish new results from old ones.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from tidegate.core.arguments import require_at_most, require_name, require_not_negative, require_positive
from tidegate.core.clock import Clock, SystemClock, milliseconds
from tidegate.core.errors import InvalidArgument
from tidegate.core.ids import new_id
from tidegate.core.priority import Priority
from tidegate.core.telemetry.metrics import DEDUP_COALESCE_HIT, DEDUP_LOCK_CONFLICT, DEDUP_UPGRADE
from tidegate.primitives.settings import CoalescerSettings
from tidegate.storage.valkey import Key, Unit, Valkey, lua_script
from tidegate.storage.valkey.scripts import Script, run_together

__all__ = [
    "AlreadyProcessing",
    "Coalescer",
    "CoalescerKeys",
    "CoalescerSettings",
    "Draft",
    "Outcome",
    "Published",
    "Upgraded",
]


class CoalescerKeys:
    """The keys of a subject's lock and version; all subjects share one unit, so that one script can read many."""

    def __init__(self, unit: Unit, subject: str) -> None:
        self.work: Key = unit.key(f"work:{require_name('subject', subject)}")
        """hash, expires: version, published; and while locked: token, outcome, urgent, lasts_ms, until_ms."""
        self.mark: Key = unit.key("mark")
        """string, never expires: the highest version of all subjects."""


_HIGHEST_VERSION = 2**52
"""Lua counts exactly up to 2**53. Microseconds reach half of that in the year 2112; the rest is room to grow."""
_READ_AT_ONCE = 1000
_PUBLISHED_AT_ONCE = 100
"""Subjects per script call: a long script blocks the server."""


@lua_script("request.lua")
async def _request(
    valkey: Valkey,
    *,
    work: Key,
    mark: Key,
    token: str,
    urgent: int,
    lasts_ms: int,
    keep_ms: int,
    known_version: int,
    now_ms: int | None,
) -> list[Any]: ...


@lua_script("publish.lua")
async def _publish(
    valkey: Valkey,
    *,
    mark: Key,
    stream: Key,
    works: list[Key],
    asked: list[tuple[list[Any], list[str], str]],
    keep_ms: int,
    now_ms: int | None,
) -> list[list[Any]]: ...


@lua_script("release.lua")
async def _release(valkey: Valkey, *, work: Key, version: int) -> int: ...


@lua_script("confirm.lua")
async def _confirm(valkey: Valkey, *, work: Key, version: int) -> int: ...


@dataclass(frozen=True)
class Draft:
    """A request and its message, which is added to a stream in the same step if the request is granted."""

    subject: str
    priority: Priority
    known_version: int
    fields: Sequence[str]
    """Names and values in turn, ending with the name of the field that holds `text`."""
    text: str
    """A JSON object without its end: the version and the closing brace are added to it."""


@dataclass(frozen=True)
class Published:
    """The caller must publish the work, under this version."""

    version: int
    token: str


@dataclass(frozen=True)
class Upgraded:
    """Like `Published`; it replaces less urgent work, and makes its version obsolete when it is confirmed."""

    version: int
    token: str


@dataclass(frozen=True)
class AlreadyProcessing:
    """The work is in progress under this version; there is nothing to publish."""

    version: int


Outcome = Published | Upgraded | AlreadyProcessing


class Coalescer:
    """Locks and versions of subjects, all in the unit `name`.

    A caller that receives `Published` or `Upgraded` from `request` must publish the work and then `confirm` it, or
    `release` it; `publish_many` does both in one step if the messages go to a stream of the same unit. Versions of a
    subject only grow: after they expired, when clocks differ or are set back, and, if callers pass the version that
    they know, even after the server lost its data.

    A version makes older ones obsolete when it is confirmed, not when it is granted. So a caller that cannot publish,
    or dies before it does, does not invalidate queued events. If a confirmation is lost, an older event is processed
    without need.

    Example:
        coalescer = Coalescer(valkey, name="players")
        answer = await coalescer.request("ada", Priority.HIGH)
        if isinstance(answer, Published | Upgraded):
            await publish("ada", answer.version)
            await coalescer.confirm("ada", answer.version)
    """

    def __init__(
        self,
        valkey: Valkey,
        settings: CoalescerSettings | None = None,
        clock: Clock | None = None,
        *,
        name: str = "coalescer",
    ) -> None:
        self._valkey, self._unit = valkey, valkey.unit(require_name("name", name))
        self._settings, self._clock = settings or CoalescerSettings(), clock or SystemClock()

    async def request(
        self, subject: str, priority: Priority, *, known_version: int = 0, token: str | None = None
    ) -> Outcome:
        """Request to do the work now.

        `known_version`: the highest version of this subject that the caller knows, e.g. from SQL; the new one is
        higher. `token`: id of this request. A repetition with the same token gets the same answer.
        """
        token = new_id() if token is None else require_name("token", token)
        arguments = self._script_arguments(subject, priority, known_version, token)
        return _count_outcome(_outcome(await _request(self._valkey, **arguments), token))

    async def request_many(self, wanted: Sequence[tuple[str, Priority, int]]) -> list[Outcome]:
        """Like `request` for many (subject, priority, known version), in one round trip.

        Raises `InvalidArgument` before anything is sent if one is invalid. If the server is unavailable, locks may have
        been taken without the knowledge of this process; they expire.
        """
        requests = [self._script_arguments(*each, token=new_id()) for each in wanted]
        replies = await run_together(self._valkey, [_request.bind(**each) for each in requests])
        return [_count_outcome(_outcome(reply, each["token"])) for reply, each in zip(replies, requests, strict=True)]

    async def publish_many(self, stream: Key, drafts: Sequence[Draft]) -> list[Outcome]:
        """Like `request_many`, and add the messages of granted requests to `stream`, which is in the same unit.

        One round trip. No confirmation is needed: a lock is only taken together with its message.
        """
        asked = [
            (self._script_arguments(each.subject, each.priority, each.known_version, new_id()), each) for each in drafts
        ]
        calls = [
            _publish.bind(
                mark=self._unit.key("mark"),
                stream=stream,
                works=[arguments["work"] for arguments, _ in some],
                asked=[(_packed(arguments), list(draft.fields), draft.text) for arguments, draft in some],
                keep_ms=milliseconds(self._settings.keep_version),
                now_ms=self._clock.pinned_ms,
            )
            for some in (asked[n : n + _PUBLISHED_AT_ONCE] for n in range(0, len(asked), _PUBLISHED_AT_ONCE))
        ]
        replies = [reply for page in await run_together(self._valkey, calls) for reply in page]
        return [_count_outcome(_outcome(reply, each["token"])) for reply, (each, _) in zip(replies, asked, strict=True)]

    async def confirm(self, subject: str, version: int) -> bool:
        """Record that the work of this version was published, which makes older versions obsolete.

        Returns False if it or newer work was confirmed before, or the version is no longer known.
        """
        (confirmed,) = await self.confirm_many([(subject, version)])
        return confirmed

    async def confirm_many(self, works: Sequence[tuple[str, int]]) -> list[bool]:
        """Like `confirm` for many (subject, version), in one round trip."""
        return [bool(reply) for reply in await self._run_on(works, _confirm)]

    async def release(self, subject: str, version: int) -> bool:
        """End the work of this version early; True for the one call that released the lock.

        Returns False if the lock was taken over, expired and taken again, or released before.
        """
        (released,) = await self.release_many([(subject, version)])
        return released

    async def release_many(self, works: Sequence[tuple[str, int]]) -> list[bool]:
        """Like `release` for many (subject, version), in one round trip."""
        released = [bool(reply) for reply in await self._run_on(works, _release)]
        DEDUP_LOCK_CONFLICT.inc(released.count(False))
        return released

    async def current_version(self, subject: str) -> int | None:
        """The newest version of this subject, published or not; None if it was never requested, or is forgotten."""
        (version,) = await self.current_versions([subject])
        return version

    async def current_versions(self, subjects: Iterable[str]) -> list[int | None]:
        """Like `current_version` for many subjects, in their order, with few round trips."""
        return await self._read("version", subjects)

    async def is_obsolete(self, subject: str, version: int) -> bool:
        """Whether newer work on this subject was confirmed; False if the subject is not known."""
        (obsolete,) = await self.are_obsolete([(subject, version)])
        return obsolete

    async def are_obsolete(self, events: Sequence[tuple[str, int]]) -> list[bool]:
        """Like `is_obsolete` for many (subject, version), with few round trips."""
        for _, version in events:
            require_positive("version", version)
        published = await self._read("published", (subject for subject, _ in events))
        return [newest is not None and version < newest for (_, version), newest in zip(events, published, strict=True)]

    async def _read(self, field: str, subjects: Iterable[str]) -> list[int | None]:
        reads = iter([("HGET", self._keys(subject).work, field) for subject in subjects])
        versions: list[int | None] = []
        while some := list(islice(reads, _READ_AT_ONCE)):
            versions += [_version(reply) for reply in await self._valkey.pipeline(some)]
        return versions

    async def _run_on(self, works: Sequence[tuple[str, int]], script: Script[..., int]) -> list[Any]:
        for _, version in works:
            require_positive("version", version)
        calls = [script.bind(work=self._keys(subject).work, version=version) for subject, version in works]
        return await run_together(self._valkey, calls)

    def _script_arguments(self, subject: str, priority: Priority, known_version: int, token: str) -> dict[str, Any]:
        """The arguments of the request scripts for one subject. Raises `InvalidArgument` if one of them is invalid."""
        require_not_negative("known_version", known_version)
        require_at_most("known_version", known_version, _HIGHEST_VERSION)
        urgent, keys = _is_urgent(priority), self._keys(subject)
        return {
            "work": keys.work,
            "mark": keys.mark,
            "token": token,
            "urgent": int(urgent),
            "lasts_ms": milliseconds(self._settings.high_lock if urgent else self._settings.low_lock),
            "keep_ms": milliseconds(self._settings.keep_version),
            "known_version": known_version,
            "now_ms": self._clock.pinned_ms,
        }

    def _keys(self, subject: str) -> CoalescerKeys:
        return CoalescerKeys(self._unit, subject)


def _packed(arguments: dict[str, Any]) -> list[Any]:
    return [arguments[name] for name in ("token", "urgent", "lasts_ms", "known_version")]


def _is_urgent(priority: Priority) -> bool:
    if priority not in set(Priority):
        raise InvalidArgument("priority", priority, f"must be one of {', '.join(Priority)}")
    return priority == Priority.HIGH


def _outcome(reply: list[Any], token: str) -> Outcome:
    match reply:
        case [b"published", version]:
            return Published(version, token)
        case [b"upgraded", version]:
            return Upgraded(version, token)
        case [b"already_processing", version]:
            return AlreadyProcessing(version)
        case _:
            raise AssertionError(f"request.lua replied {reply!r}")


def _count_outcome(outcome: Outcome) -> Outcome:
    """Count an outcome in the metrics, and return it."""
    if isinstance(outcome, AlreadyProcessing):
        DEDUP_COALESCE_HIT.inc()
    elif isinstance(outcome, Upgraded):
        DEDUP_UPGRADE.inc()
    return outcome


def _version(reply: Any) -> int | None:
    if isinstance(reply, Exception):
        raise reply
    return None if reply is None else int(reply)
