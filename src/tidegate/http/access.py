"""Access control: compares API keys, and limits how many wrong keys a client address may send.

One `Access` serves all entry points of a process. So an address has one allowance for the login form and for
`Authorization: Bearer` together.
"""

import hashlib
import hmac
import secrets
from typing import TypeVar

from tidegate.core.clock import Clock, from_ms
from tidegate.core.ids import new_id
from tidegate.core.telemetry import metrics
from tidegate.http.attempts import AttemptLimit, Attempts, SharedAttempts
from tidegate.http.callers import ApiKey, HttpCaller, Keyring
from tidegate.http.problems import ProblemType, RequestFailed
from tidegate.http.remote import ClientAddresses
from tidegate.http.session_records import OpenSession
from tidegate.http.session_registry import SessionRegistry
from tidegate.http.sessions import SessionManager
from tidegate.http.settings import HttpSettings
from tidegate.storage.sql import Database
from tidegate.storage.valkey import Valkey

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
