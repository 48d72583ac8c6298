"""Access control: compares API keys, and limits how many wrong keys a client address may send.

One `Access` serves all entry points of a process. So an address has one allowance for the login form and for
`Authorization: Bearer` together. Attempts are limited in the memory of the process; `SharedAttempts` also limits them
across all processes, in Valkey.
"""

import hashlib
import hmac
import math
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import TypeVar

from tidegate.core.arguments import require_positive
from tidegate.core.clock import Clock, from_ms
from tidegate.core.errors import Unavailable
from tidegate.core.ids import new_id
from tidegate.core.telemetry import metrics
from tidegate.http.asgi import ClientAddresses
from tidegate.http.callers import ApiKey, HttpCaller, Keyring
from tidegate.http.problems import ProblemType, RequestFailed
from tidegate.http.session_store import OpenSession, SessionRegistry
from tidegate.http.sessions import SessionManager
from tidegate.http.settings import HttpSettings
from tidegate.primitives.throttle import Throttle
from tidegate.storage.sql import Database
from tidegate.storage.valkey import Valkey

_MOST_SUBJECTS = 10_000


@dataclass(frozen=True)
class AttemptLimit:
    """`burst` attempts at once, then one more every `another_after_s` seconds."""

    burst: int
    another_after_s: float

    def __post_init__(self) -> None:
        require_positive("burst", self.burst)
        require_positive("another_after_s", self.another_after_s)

    @property
    def complete_after_s(self) -> float:
        """Seconds until a used up allowance is restored completely."""
        return self.burst * self.another_after_s


class Attempts:
    """Counts the attempts of each subject.

    Memory is bounded: a subject is removed when its allowance is restored completely; if there are too many, the
    subject that was counted longest ago is removed.
    """

    def __init__(
        self,
        allowance: AttemptLimit,
        *,
        most_subjects: int = _MOST_SUBJECTS,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self.allowance, self._most, self._now = allowance, most_subjects, now
        # One number describes an allowance: the time at which it is restored. Each attempt adds one interval to it.
        self._complete_at: dict[str, float] = {}

    def __len__(self) -> int:
        return len(self._complete_at)

    def __contains__(self, subject: str) -> bool:
        """Whether a part of the subject's allowance is used."""
        return self._complete_at.get(subject, 0.0) > self._now()

    def take(self, subject: str) -> float | None:
        """Count one attempt. Returns None if it is allowed, otherwise the seconds to wait."""
        now = self._now()
        after = max(now, self._complete_at.get(subject, 0.0)) + self.allowance.another_after_s
        # The attempt is allowed if the allowance would be restored within its full span; otherwise nothing is counted.
        wait_s = after - now - self.allowance.complete_after_s
        if wait_s > 0:
            return wait_s
        self._set(subject, after)
        return None

    def give_back(self, subject: str) -> None:
        """Undo the count of one attempt."""
        if subject in self._complete_at:
            self._complete_at[subject] -= self.allowance.another_after_s

    def block(self, subject: str, wait_s: float) -> None:
        """Refuse attempts for the next `wait_s` seconds."""
        used_s = self.allowance.complete_after_s - self.allowance.another_after_s
        self._set(subject, self._now() + used_s + wait_s)

    def _set(self, subject: str, complete_at: float) -> None:
        self._complete_at.pop(subject, None)
        self._complete_at[subject] = complete_at  # appended: the dictionary is ordered by last use
        now = self._now()
        while self._complete_at:
            oldest, complete_at = next(iter(self._complete_at.items()))
            if complete_at > now and len(self._complete_at) <= self._most:
                return
            del self._complete_at[oldest]


class SharedAttempts:
    """An allowance that all processes share.

    Attempts are counted in Valkey and in each process. While Valkey is unavailable or absent, the allowance applies
    to each process separately. A subject that Valkey refused is refused locally until its wait ends.
    """

    def __init__(self, name: str, local: Attempts, valkey: Valkey | None = None) -> None:
        allowance, self._local = local.allowance, local
        interval = timedelta(seconds=allowance.another_after_s)
        self._shared = None if valkey is None else Throttle(valkey, name, burst=allowance.burst, interval=interval)

    def __contains__(self, subject: str) -> bool:
        """Whether this process has counted attempts of the subject."""
        return subject in self._local

    async def take(self, subject: str, item: str) -> int | None:
        """Count one attempt. Returns None if it is allowed, otherwise the seconds to wait."""
        # Local first: what this process refuses costs no call.
        wait_s = self._local.take(subject)
        if wait_s is None and self._shared is not None:
            try:
                wait = await self._shared.take(subject, item)
            except Unavailable:
                wait = None
            if wait is not None:
                wait_s = wait.total_seconds()
                # Further attempts of this subject are refused here, without a call of the server.
                self._local.block(subject, wait_s)
        return None if wait_s is None else math.ceil(wait_s)

    async def give_back(self, subject: str, item: str) -> None:
        """Undo the count of one attempt."""
        self._local.give_back(subject)
        if self._shared is not None:
            try:
                await self._shared.give_back(subject, item)
            except Unavailable:
                return  # the attempt stays counted until the allowance is restored with time


OF_ADDRESS = AttemptLimit(burst=10, another_after_s=30)
"""Wrong keys that one address may send."""
OF_LOGINS = AttemptLimit(burst=100, another_after_s=1)
"""Wrong keys in the login form, from all addresses together."""
_EVERY_ADDRESS = "all"
_MOST_REMEMBERED = 10_000
T = TypeVar("T")


class Access:
    """The keys of an installation, and the sessions that were opened with them."""

    def __init__(
        self,
        settings: HttpSettings,
        *,
        valkey: Valkey | None = None,
        database: Database | None = None,
        clock: Clock | None = None,
        of_address: Attempts | None = None,
        of_logins: Attempts | None = None,
    ) -> None:
        """With `valkey` all processes share the allowances of wrong keys; without, each has its own. With `database`
        sessions are listed, and can be revoked."""
        self.settings, self.keyring, self.addresses = settings, Keyring(settings), ClientAddresses(settings)
        self.sessions = SessionManager(self.keyring, settings.session_lasts, clock)
        self.registry = None if database is None else SessionRegistry(database, settings.session_lasts)
        of_address = Attempts(OF_ADDRESS) if of_address is None else of_address
        of_logins = Attempts(OF_LOGINS) if of_logins is None else of_logins
        self._of_address = SharedAttempts("wrong-keys", of_address, valkey)
        self._of_logins = SharedAttempts("wrong-logins", of_logins, valkey)
        # Pairs of address and key that were right, and pairs that were wrong: digests with a secret of this process.
        self._known, self._wrong = dict[tuple[str, str], None](), dict[tuple[str, bytes], None]()
        self._digest_key = secrets.token_bytes(32)

    def find_at_once(self, text: str, address: str) -> ApiKey | None:
        """The key that was sent, if that can be decided without I/O; None: use `find`."""
        key = self.keyring.find(text)
        # While an address has used a part of its attempts, only `find` may decide: it counts the attempt first.
        if key is None or (address in self._of_address and not self._is_known(key, address)):
            return None
        _remember(self._known, (address, key.id))
        return key

    async def find(self, text: str, address: str, *, at_login: bool = False) -> ApiKey | None:
        """The key that was sent; None if it is wrong.

        Raises `RequestFailed` if the address has sent too many wrong keys, even if this key is right: otherwise the
        answer would show an attacker which key is right. A key that the address used before it ran out of attempts is
        exempt. A right key does not restore attempts, so the owner of one key cannot guess another without limit. The
        same wrong key counts once, because repeating it is not a new guess.
        """
        key = self.keyring.find(text)
        # The usual case: a right key from an address without wrong attempts. A login is always counted,
        # unless the pair is known.
        if key is not None and (self._is_known(key, address) or not at_login) and self.find_at_once(text, address):
            return key
        # A keyed digest: the memory of the process holds no text of a key that was sent.
        wrong = address, hmac.digest(self._digest_key, text.encode("latin-1", "replace"), hashlib.sha256)
        if wrong in self._wrong:
            return self._refuse(at_login=at_login)
        # An attempt is counted before it is answered, so concurrent requests get no more attempts than sequential ones.
        item = new_id()
        subjects = [(self._of_address, address), *([(self._of_logins, _EVERY_ADDRESS)] if at_login else [])]
        for allowance, subject in subjects:
            wait_s = await allowance.take(subject, item)
            if wait_s is not None:
                raise _too_many(wait_s, at_login=at_login)
        if key is None:
            _remember(self._wrong, wrong)
            return self._refuse(at_login=at_login)
        for allowance, subject in subjects:
            await allowance.give_back(subject, item)
        _remember(self._known, (address, key.id))
        return key

    async def open_session(self, key: ApiKey, address: str) -> tuple[str, HttpCaller]:
        """Open a session for a key. Returns the value of the cookie, and the caller of requests that send it."""
        token, caller = self.sessions.open(key)
        if self.registry is not None:
            assert caller.session_id is not None
            session = OpenSession(
                id=caller.session_id,
                key_id=key.id,
                role=key.role.value,
                address=address,
                opened_at=from_ms(caller.opened_ms or 0),
                expires_at=from_ms(caller.until_ms or 0),
            )
            await self.registry.record(session)
        return token, caller

    async def is_revoked(self, caller: HttpCaller, *, only_reads: bool) -> bool:
        """Whether the caller's session was revoked; see `SessionRegistry.is_revoked`."""
        if self.registry is None or caller.session_id is None:
            return False
        return await self.registry.is_revoked(caller, only_reads=only_reads)

    def _refuse(self, *, at_login: bool) -> None:
        metrics.HTTP_KEYS_REFUSED.labels("login" if at_login else "request").inc()

    def _is_known(self, key: ApiKey, address: str) -> bool:
        return (address, key.id) in self._known


def _remember(memory: dict[T, None], pair: T) -> None:
    memory.setdefault(pair)
    if len(memory) > _MOST_REMEMBERED:
        del memory[next(iter(memory))]


def _too_many(wait_s: int, *, at_login: bool) -> RequestFailed:
    if at_login:
        metrics.HTTP_LOGINS.labels("blocked").inc()
    detail = f"too many wrong keys were sent from this address; try again in {wait_s} s"
    return RequestFailed(ProblemType.TOO_MANY_ATTEMPTS, detail, headers={"Retry-After": str(wait_s)})
