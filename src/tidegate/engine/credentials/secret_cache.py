"""The secrets of one process: provides the secret for a credential that the gate chose, and handles rejections.

Secrets are read from SQL when needed and cached for a minute. A removed credential leaves the gate at once, so its
secret is not requested again. A replaced secret is noticed after that minute, or when the upstream rejects the old one:
then the row is read again before the credential is marked as invalid.

A token that expires (`RenewedToken`) is issued at its first use and renewed before its end, one renewal at a time.

The token of the environment is kept in memory only. It serves the shared pool while no stored credential does
(`borrow`). What is known about it is stored under a keyed hash, without the token: its account, so that it need not be
looked up again, and whether it was rejected.
"""

import asyncio
import random
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from datetime import timedelta
from time import monotonic

import msgspec

from tidegate.core.backoff import Backoff
from tidegate.core.errors import InvalidSettings, NoCredential, TidegateError, Unavailable
from tidegate.core.telemetry.logs import get_logger
from tidegate.core.telemetry.redaction import redact_text
from tidegate.engine import metrics
from tidegate.engine.credentials import records
from tidegate.engine.credentials.authority import (
    Authority,
    Installation,
    IssuedToken,
    SecretRefused,
    SecretUncheckable,
    details_of,
    require_token,
)
from tidegate.engine.credentials.pools import command_to_add, pool_of, token_variable
from tidegate.engine.credentials.records import Credential, CredentialKind, NewCredential, Stored
from tidegate.engine.credentials.vault import Vault
from tidegate.engine.upstream import UpstreamFailed
from tidegate.runtime.waiting import end
from tidegate.storage.sql import Database, Transaction

log = get_logger(__name__)

_PAUSES = Backoff(first=timedelta(seconds=5), most=timedelta(minutes=2))
_LONGEST_MARGIN_S = 30.0
_PROBATION_S = 30.0
"""If the successor of a rejected token is rejected within this time, no further token is issued."""


class _Current(msgspec.Struct, frozen=True):
    token: str
    issued_at: float
    renew_at: float
    useless_at: float

    def __repr__(self) -> str:
        return "_Current(…)"


class RenewedToken:
    """The current token of one installation, in memory.

    It is renewed after 70 to 90 % of its life, at random, so that processes that started together do not renew
    together. The old token is used during a renewal until shortly before it expires, so renewals delay no caller.
    """

    def __init__(self, name: str, issue: Callable[[], Awaitable[IssuedToken]]) -> None:
        self._name, self._issue = name, issue
        self._current: _Current | None = None
        self._renewing: asyncio.Task[str] | None = None
        self._failures, self._not_before = 0, 0.0
        self._last_error: TidegateError | None = None
        self._was_refused = False

    async def get(self) -> str:
        """Return a valid token; raises what the issuer raises."""
        now, current = monotonic(), self._current
        if current is None or now >= current.useless_at:
            if now < self._not_before:  # back-off after a failed renewal, for all callers
                raise SecretUncheckable(f"no new token could be had: {_text_of(self._last_error)}")
            # Shielded, because other callers wait for the same renewal.
            return await asyncio.shield(self._begin())
        if now >= current.renew_at and now >= self._not_before:
            self._begin()
        return current.token

    def refuse(self, token: str) -> bool:
        """Drop `token`, which the upstream rejected. False if a new one would be rejected too."""
        current = self._current
        if current is None or current.token != token:
            return True
        if self._was_refused and monotonic() - current.issued_at < _PROBATION_S:
            return False
        self._current, self._was_refused = None, True
        return True

    def is_current(self, token: str) -> bool:
        """Whether `token` is the one in use."""
        return self._current is not None and self._current.token == token

    @property
    def renewing(self) -> asyncio.Task[str] | None:
        """The renewal in progress, or None."""
        return None if self._renewing is None or self._renewing.done() else self._renewing

    def _begin(self) -> asyncio.Task[str]:
        task = self.renewing
        if task is None:
            task = self._renewing = asyncio.create_task(self._renew(), name=f"renew {self._name}")
            task.add_done_callback(_seen)
        return task

    async def _renew(self) -> str:
        """Request a new token, and plan its renewal; after a failure, plan the next attempt."""
        # The life of the token is counted from the request, so that a slow answer does not extend it.
        asked_at = monotonic()
        try:
            issued = await self._issue()
        except TidegateError as error:
            self._failures, self._last_error = self._failures + 1, error
            self._not_before = monotonic() + _PAUSES.delay(self._failures).total_seconds()
            is_final = isinstance(error, SecretRefused)
            log.warning("credentials.renewal_failed", credential_name=self._name, final=is_final, error=str(error))
            raise
        margin_s = min(_LONGEST_MARGIN_S, issued.lasts_s / 10)
        share = 0.7 + 0.2 * random.random()  # noqa: S311 - spreads load, guards nothing
        self._current = _Current(
            issued.token, asked_at, asked_at + share * issued.lasts_s, asked_at + issued.lasts_s - margin_s
        )
        self._failures, self._not_before = 0, 0.0
        metrics.CREDENTIAL_TOKENS_ISSUED.inc()
        log.info("credentials.token_issued", credential_name=self._name, lasts_s=round(issued.lasts_s))
        return issued.token


def _seen(task: asyncio.Task[str]) -> None:
    """Retrieve the error of a renewal that was not awaited, so that asyncio does not report it; it was logged."""
    if not task.cancelled():
        task.exception()


def _text_of(error: TidegateError | None) -> str:
    """The text of an error for callers, without the address of the upstream."""
    return error.summary if isinstance(error, UpstreamFailed) else str(error)


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
                await self.mark_invalid(held.stored, refused.reason)

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
        await self.mark_invalid(held.stored, reason)
        return await self._read(allowance) is not None or bool(await self._in_memory(allowance))

    async def mark_invalid(self, stored: Stored, reason: str) -> None:
        """Stop using this secret in all processes until a test succeeds or it is replaced."""
        reason = redact_text(reason)
        # Many calls can report the same secret. The one that changed the row logs it.
        if await self._database.transaction(records.mark_invalid, stored, reason):
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


async def borrow(
    token: str,
    database: Database,
    vault: Vault,
    authority: Authority,
    *,
    source: str,
    dismiss: Callable[[str], Awaitable[None]],
) -> EnvironmentCredential | None:
    """Start using the token; returns None if stored credentials serve the shared pool already.

    `dismiss` is awaited with the allowance of the token that this one replaced, unless they share it. Raises
    `InvalidSettings` if the upstream rejects the token, or if its account serves one user only.
    """
    token, variable = require_token(token), token_variable(source)
    if await database.read(_is_needless, source, authority.audience):
        log.info("credentials.environment_ignored", variable=variable)
        return None
    fingerprint = await vault.fingerprint(token)
    known = await database.read(records.find, source, variable)
    # The upstream confirmed this token before, so it is not asked at each start.
    if known is not None and known.is_valid_token(fingerprint, authority.audience):
        return EnvironmentCredential(token, known)
    try:
        checked = await authority.check(token, identify=True)
    except SecretRefused as refused:
        raise InvalidSettings(
            f"{variable} cannot be used: {authority.audience} says {redact_text(refused.reason)}"
        ) from None
    if checked.account is None:
        raise SecretUncheckable(f"the allowance of {variable} is exhausted, so its account cannot be looked up")
    new = NewCredential(
        source=source,
        name=variable,
        kind=CredentialKind.ENVIRONMENT,
        owner=checked.account.login,
        account=checked.account,
        audience=authority.audience,
        pool=pool_of(source),
        user_id=None,
        details=details_of(checked),
        sealed=None,
        fingerprint=fingerprint,
        is_checked=True,
    )
    stored, replaced = await database.transaction(records.adopt, new)
    # The former token belonged to another account, which the gate must no longer use.
    if replaced is not None and replaced.credential.allowance != checked.account.allowance:
        await dismiss(replaced.credential.allowance)
    return EnvironmentCredential(token, stored)


def _is_needless(tx: Transaction, source: str, audience: str) -> bool:
    return records.is_served(tx, pool_of(source), audience, by_stored=True)
