"""The secrets of one process: provides the secret for a credential that the gate chose, and handles rejections.

Secrets are read from SQL when needed and cached for a minute. A removed credential leaves the gate at once, so its
secret is not requested again. A replaced secret is noticed after that minute, or when the upstream rejects the old one:
then the row is read again before the credential is marked as invalid.
"""

import asyncio
from collections import OrderedDict
from time import monotonic

import msgspec

from tidegate.core.errors import NoCredential, TidegateError, Unavailable
from tidegate.core.telemetry import metrics
from tidegate.core.telemetry.logs import get_logger
from tidegate.core.telemetry.redaction import redact_text
from tidegate.engine.credentials import records
from tidegate.engine.credentials.authority import Authority, Installation, SecretRefused
from tidegate.engine.credentials.pools import command_to_add
from tidegate.engine.credentials.records import Credential, CredentialKind, Stored
from tidegate.engine.credentials.renewal import RenewedToken
from tidegate.engine.credentials.vault import Vault
from tidegate.runtime.waiting import end
from tidegate.storage.sql import Database

log = get_logger(__name__)

_KEPT_S = 60.0
_MOST_KEPT = 1_000


class SecretElsewhere(Unavailable):
    """Other processes hold the token in memory and this one does not; one of them can execute the job later."""

    def __init__(self, variable: str, source: str) -> None:
        super().__init__(
            f"this process was not given {variable}, with which others work. Give it to every process, or store the "
            f"token with `{command_to_add(source)}`"
        )


class EnvironmentCredential(msgspec.Struct, frozen=True):
    """The token of the environment of this process, and the row that describes it."""

    token: str
    stored: Stored

    def known_as(self, present: Stored) -> Stored:
        """The row of this token, given the current row of its account.

        Other processes may have rewritten that row for another token of the account. This token may be used then too,
        but the result of its calls does not concern that row.
        """
        return present if present.fingerprint == self.stored.fingerprint else self.stored

    def __repr__(self) -> str:
        return f"Borrowed({self.stored.credential.allowance})"


class _Held(msgspec.Struct, frozen=True):
    """A cached secret, or the object that issues tokens."""

    stored: Stored
    secret: str | RenewedToken
    read_at: float

    def __repr__(self) -> str:
        return f"_Held({self.stored.credential.name})"

    @property
    def is_old(self) -> bool:
        return monotonic() - self.read_at > _KEPT_S

    async def get(self) -> str:
        return self.secret if isinstance(self.secret, str) else await self.secret.get()

    def is_in_use(self, secret: str) -> bool:
        return self.secret == secret if isinstance(self.secret, str) else self.secret.is_current(secret)


class SecretCache:
    """The secrets of one process, by allowance."""

    def __init__(self, database: Database, vault: Vault, authority: Authority) -> None:
        self._database, self._vault, self._authority = database, vault, authority
        self._held: OrderedDict[str, _Held] = OrderedDict()
        self._leaving: set[asyncio.Task[str]] = set()
        self.borrowed: EnvironmentCredential | None = None

    async def secret_of(self, allowance: str) -> str:
        """The secret to send, which callers do not keep; raises `NoCredential` if no valid one is known."""
        while True:
            held = self._held.get(allowance)
            if held is None or held.is_old:
                held = await self._read(allowance)
            if held is None:
                raise await self._lack_of(allowance)
            try:
                return await held.get()
            except SecretRefused as refused:  # the key of an app; each iteration marks one as invalid
                await self.condemn(held.stored, refused.reason)

    async def rejected(self, allowance: str, secret: str, reason: str) -> bool:
        """Handle a rejected secret. True if another one can be tried, here or in another process.

        Concurrent calls may report the same secret; it is marked as invalid once, and no other secret is.
        """
        # From SQL and not from the cache: the secret may have been replaced by another process.
        held = await self._read(allowance)
        if held is None:
            return bool(await self._in_memory(allowance))
        if not held.is_in_use(secret):  # replaced or marked as invalid in the meantime
            return True
        if isinstance(held.secret, RenewedToken) and held.secret.refuse(secret):
            return True
        await self.condemn(held.stored, reason)
        return await self._read(allowance) is not None or bool(await self._in_memory(allowance))

    async def condemn(self, stored: Stored, reason: str) -> None:
        """Stop using this secret in all processes until a test succeeds or it is replaced."""
        reason = redact_text(reason)
        # Many calls can report the same secret. The one that changed the row logs it.
        if await self._database.transaction(records.condemn, stored, reason):
            metrics.CREDENTIALS_REFUSED.inc()
            log.warning("credentials.refused", credential_name=stored.credential.name, reason=reason)
        if stored.credential.kind is CredentialKind.ENVIRONMENT:
            self.borrowed = None
        self.forget(stored.credential.allowance)

    def forget(self, allowance: str) -> None:
        """Drop the cached secret; it is read again when it is next needed."""
        held = self._held.pop(allowance, None)
        task = held.secret.renewing if held is not None and isinstance(held.secret, RenewedToken) else None
        if task is not None:  # a caller may be waiting for it
            self._leaving.add(task)
            task.add_done_callback(self._leaving.discard)

    async def close(self) -> None:
        """Forget all secrets and end renewals."""
        self.borrowed = None
        for allowance in list(self._held):
            self.forget(allowance)
        await end(*self._leaving)

    async def _lack_of(self, allowance: str) -> TidegateError:
        """The error for an allowance without a secret."""
        for stored in await self._in_memory(allowance):
            return SecretElsewhere(stored.credential.name, stored.credential.source)
        return NoCredential(f"there is no valid secret for {allowance}")

    async def _read(self, allowance: str) -> _Held | None:
        """Read the secret from SQL; the token of this process is used only if none is stored."""
        found = await self._database.read(records.usable_of, allowance, self._authority.audience)
        if found:
            return await self._hold(allowance, found[0])
        self.forget(allowance)
        for known in await self._in_memory(allowance):
            borrowed = self.borrowed
            if borrowed is not None and borrowed.stored.credential.allowance == allowance:
                held = self._held[allowance] = _Held(borrowed.known_as(known), borrowed.token, monotonic())
                return held
        return None

    async def _in_memory(self, allowance: str) -> list[Stored]:
        """The valid row of a token that processes hold in memory for an allowance, if any."""
        return await self._database.read(records.borrowed_of, allowance)

    async def _hold(self, allowance: str, stored: Stored) -> _Held:
        """Keep the cached secret if its row is unchanged. Concurrent callers share one secret."""
        secret = self._at_hand(allowance, stored)
        if secret is None:
            opened = await self._open(stored)
            # Another task may have opened it during the await. A second object would issue tokens of its own.
            secret = self._at_hand(allowance, stored) or opened
        self.forget(allowance)
        held = self._held[allowance] = _Held(stored, secret, monotonic())
        while len(self._held) > _MOST_KEPT:
            self.forget(next(iter(self._held)))
        return held

    def _at_hand(self, allowance: str, stored: Stored) -> str | RenewedToken | None:
        held = self._held.get(allowance)
        is_same = held is not None and (held.stored.id, held.stored.version) == (stored.id, stored.version)
        return held.secret if held is not None and is_same else None

    async def _open(self, stored: Stored) -> str | RenewedToken:
        assert stored.sealed is not None
        secret = await self._vault.open(stored.label, stored.sealed)
        if stored.credential.kind is not CredentialKind.INSTALLATION:
            return secret
        installation = installation_of(stored.credential)
        return RenewedToken(stored.credential.name, lambda: self._authority.issue(installation, secret))


def installation_of(credential: Credential) -> Installation:
    """The installation that a stored credential describes."""
    return msgspec.convert({name: credential.details[name] for name in ("app_id", "installation_id")}, Installation)
