"""Accepts entries: one reply per attempt, without waiting for the decision.

Attempts that arrive during a call of the script are sent together in the next call: many concurrent attempts share a
call, and a single one does not wait.
"""

import asyncio
import itertools
import secrets
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NamedTuple, Unpack

import msgspec

from tidegate.core.clock import Clock, SystemClock, milliseconds
from tidegate.core.errors import InvalidArgument, ValkeyUnavailable
from tidegate.storage.valkey import Valkey, lua_script
from tidegate.systems.campaigns import metrics
from tidegate.systems.campaigns.installation import REMEMBERED_FOR
from tidegate.systems.campaigns.model import (
    MOST_DATA,
    EntryAnswer,
    EntryReceipt,
    require_campaign,
    require_key,
    require_user,
)
from tidegate.systems.campaigns.scripts import CampaignKeys, campaign_keys
from tidegate.systems.campaigns.settings import CampaignSettings

_AT_ONCE = 250
"""Attempts per script: about a millisecond of the server's time."""
_TRIES = 5
_ANSWERS = dict(zip(b"ADSNB", EntryAnswer, strict=True))
_encode = msgspec.json.Encoder().encode


@lua_script("enter.lua")
async def _enter(
    valkey: Valkey,
    *,
    campaign: str,
    attempts: Sequence[tuple[str, str, str]],
    max_len: int,
    forget_ms: int,
    now_ms: int | None,
    **keys: Unpack[CampaignKeys],
) -> list[Any]:
    """Answer attempts, and add accepted ones to the stream."""
    ...


class _EntryAttempt(NamedTuple):
    user: str
    key: str
    rest: str
    """JSON of the message after the fields that the server adds."""
    answered: asyncio.Future[EntryReceipt]


class EntryService:
    """Accepts entries of all campaigns in this process."""

    def __init__(
        self,
        valkey: Valkey,
        install: Callable[[str], Awaitable[object]],
        settings: CampaignSettings | None = None,
        clock: Clock | None = None,
    ) -> None:
        """`install` installs a campaign on the server, or raises `NotFound`."""
        self._valkey, self._install = valkey, install
        self._settings, self._clock = settings or CampaignSettings(), clock or SystemClock()
        self._waiting: dict[str, list[_EntryAttempt]] = {}
        """Per campaign with a running call: attempts for the next call."""
        self._asking: set[asyncio.Task[None]] = set()
        self._ours, self._count = secrets.token_hex(4), itertools.count(1)

    async def enter(self, campaign: str, user: str, key: str | None = None, data: Any = None) -> EntryReceipt:
        """Enter a campaign; the receipt says whether the entry was accepted. Raises `NotFound`.

        The same user with the same key receives the same answer again. Without a key, a second attempt is a DUPLICATE.
        """
        return await self.ask(campaign, user, key, data)

    def ask(self, campaign: str, user: str, key: str | None = None, data: Any = None) -> asyncio.Future[EntryReceipt]:
        """Like `enter`, without a task: the future is completed with the receipt."""
        require_campaign(campaign)
        user = require_user(user)
        # A generated key lets this process repeat the call after a broken connection.
        key = f"{self._ours}.{next(self._count):x}" if key is None else require_key(key)
        attempt = _EntryAttempt(user, key, _rest_of(user, key, data), asyncio.get_running_loop().create_future())
        # A key in this dict means that a task is running for the campaign.
        waiting = self._waiting.get(campaign)
        if waiting is None:
            self._waiting[campaign] = [attempt]
            task = asyncio.create_task(self._ask_for_all(campaign), name=f"enter {campaign}")
            self._asking.add(task)
            task.add_done_callback(self._asking.discard)
        else:
            waiting.append(attempt)
        return attempt.answered

    async def close(self) -> None:
        """Wait until all attempts are answered."""
        while self._asking:
            await asyncio.wait(self._asking)

    async def _ask_for_all(self, campaign: str) -> None:
        """Call the script until no attempt of this campaign waits."""
        keys = campaign_keys(self._valkey, campaign)
        # Everything that arrives during a call is sent with the next one.
        while waiting := self._waiting[campaign]:
            batch, self._waiting[campaign] = waiting[:_AT_ONCE], waiting[_AT_ONCE:]
            try:
                answers = await self._ask(campaign, keys, batch)
            except Exception as error:  # every attempt must be completed, whatever the error is
                for attempt in batch:
                    if not attempt.answered.done():
                        attempt.answered.set_exception(error)
            else:
                for attempt, answer in zip(batch, answers, strict=True):
                    if not attempt.answered.done():
                        attempt.answered.set_result(answer)
        # No await after the loop's last check, so no attempt is left without a task.
        del self._waiting[campaign]

    async def _ask(self, campaign: str, keys: CampaignKeys, batch: Sequence[_EntryAttempt]) -> list[EntryReceipt]:
        """Enter a batch of users with one script call. Installs the campaign if the Valkey server does not know it."""
        for _ in range(_TRIES):
            reply = await _enter(
                self._valkey,
                campaign=campaign,
                attempts=[attempt[:3] for attempt in batch],
                max_len=self._settings.max_len,
                forget_ms=milliseconds(REMEMBERED_FOR),
                now_ms=self._clock.pinned_ms,
                **keys,
            )
            match reply:
                case [b"answered", opens_in_ms, letters, numbers]:
                    return _answers(opens_in_ms, letters, numbers)
                case [b"unknown"]:
                    await self._install(campaign)
                case _:
                    raise AssertionError(f"enter.lua replied {reply!r}")
        raise ValkeyUnavailable(f"campaign {campaign!r} is lost as soon as it is installed")


def _rest_of(user: str, key: str, data: Any) -> str:
    """Encode the part of a message that the server does not read."""
    payload: dict[str, Any] = {"user": user, "key": key}
    if data is not None:
        encoded = _encode_data(data)
        if len(encoded) > MOST_DATA:
            raise InvalidArgument("data", f"{len(encoded)} bytes", f"must be at most {MOST_DATA} bytes of JSON")
        payload["data"] = msgspec.Raw(encoded)
    # Without the opening brace: the script puts number, epoch and time in front of it.
    return _encode(payload)[1:].decode()


def _encode_data(data: Any) -> bytes:
    try:
        return _encode(data)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise InvalidArgument("data", type(data).__name__, f"must be JSON: {error}") from None


def _answers(opens_in_ms: int, letters: bytes, numbers: Sequence[int]) -> list[EntryReceipt]:
    answers: list[EntryReceipt] = []
    for letter, number in zip(letters, numbers, strict=True):
        # One letter per attempt keeps the reply of a large batch small.
        answer = _ANSWERS[letter]
        opens = opens_in_ms if answer is EntryAnswer.NOT_OPEN and opens_in_ms >= 0 else None
        answers.append(EntryReceipt(answer, number or None, opens))
    for letter, answer in _ANSWERS.items():
        if count := letters.count(letter):
            metrics.CAMPAIGN_ENTRIES.labels(answer.value.lower()).inc(count)
    return answers
