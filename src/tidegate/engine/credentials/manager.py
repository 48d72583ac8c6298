"""The credentials of a source: add, list, test and remove them, provide their secrets, and register them in the gate.

SQL is the source of truth and is written first; the gate is updated right after the commit. If the process dies in
between, the next leader updates the gate, because it registers all credentials when it starts.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence

from tidegate.core.arguments import require_name, require_whole
from tidegate.core.errors import InvalidArgument, InvalidSettings, NoCredential
from tidegate.core.telemetry.logs import get_logger
from tidegate.engine.credentials import records
from tidegate.engine.credentials.authority import (
    Account,
    Authority,
    CredentialCheck,
    Installation,
    SecretRefused,
    SecretReport,
    SecretUncheckable,
    details_of,
    require_private_key,
    require_text,
    require_token,
)
from tidegate.engine.credentials.opening import EncryptedSecrets, Rotation, rotate_key
from tidegate.engine.credentials.pools import how_to_get_one, pool_of, token_variable
from tidegate.engine.credentials.records import Credential, CredentialKind, CredentialState, NewCredential, Stored
from tidegate.engine.credentials.secret_cache import SecretCache, borrow, installation_of
from tidegate.engine.credentials.vault import Label, Vault
from tidegate.primitives.gate import CredentialLimits, Gate
from tidegate.storage.sql import Database

log = get_logger(__name__)

_LONGEST_NAME, _LONGEST_OWNER = 100, 200
_AT_ONCE = 50


class CredentialManager:
    """The credentials of one source.

    `on_unserved` is called with a pool that has no valid credential left. `before_registration` is awaited before a
    credential is registered in the gate: a gate that lost its data grants permits as soon as it knows a credential, so
    stored limits have to be restored first.
    """

    def __init__(
        self,
        database: Database,
        gate: Gate,
        vault: Vault,
        authority: Authority,
        *,
        source: str,
        limits: CredentialLimits,
        on_unserved: Callable[[str], Awaitable[None]],
        before_registration: Callable[[], Awaitable[None]],
    ) -> None:
        self._database, self._gate, self._limits, self._on_unserved = database, gate, limits, on_unserved
        self.source, self.pool = source, pool_of(source)
        self.vault = self._vault = vault
        self._authority, self._before_registration = authority, before_registration
        self.secrets = SecretCache(database, vault, authority)
        self.holdings: list[Callable[[], EncryptedSecrets | None]] = []
        """Factories for other secrets that are encrypted with the same keys; called when the keys are rotated."""

    @property
    def audience(self) -> str:
        """The address to which its secrets are sent."""
        return self._authority.audience

    async def list(self) -> Sequence[Credential]:
        """Return all credentials without secrets, oldest first."""
        return [stored.credential for stored in await self._database.read(records.everything, self.source)]

    async def get(self, name: str) -> Credential:
        """Return a credential without its secret. Raises `NotFound`."""
        return (await self._database.read(records.get, self.source, name)).credential

    async def labels(self) -> Mapping[str, str]:
        """Display names (`octocat`, `installation 5`) by the names that the gate uses."""
        return {one.allowance: one.account for one in await self.list()}

    async def add_token(
        self,
        secret: str,
        *,
        owner: str | None = None,
        user_id: str | None = None,
        name: str | None = None,
        check: bool = True,
    ) -> Credential:
        """Store a token, or replace the token of the credential `name`. It is used from now on.

        The upstream is asked for its account, because all tokens of an account share one allowance. Without `check`,
        the token is treated as the only one of its account until it is tested. The recorded owner is the login of the
        account unless `owner` is given.
        """
        token = require_token(secret)
        checked = await self._authority.check(token, identify=True) if check else None
        account = await self._account_of(token, checked, name)
        if owner is None and checked is None:
            raise InvalidArgument("owner", None, "is required if the token is not checked")
        return await self._add(
            CredentialKind.TOKEN, token, account, checked, owner=owner or account.login, user_id=user_id, name=name
        )

    async def add_installation(
        self,
        private_key: str,
        *,
        app_id: int,
        installation_id: int,
        owner: str,
        user_id: str | None = None,
        name: str | None = None,
        check: bool = True,
    ) -> Credential:
        """Store the key of an app for one of its installations. Tokens are issued on demand."""
        require_whole("app_id", app_id, least=1, most=10**15)
        require_whole("installation_id", installation_id, least=1, most=10**15)
        key, installation = (
            require_private_key(private_key),
            Installation(app_id=app_id, installation_id=installation_id),
        )
        checked = await self._check_installation(installation, key) if check else None
        account = self._authority.account_of(installation)
        return await self._add(
            CredentialKind.INSTALLATION,
            key,
            account,
            checked,
            owner=owner,
            user_id=user_id,
            name=name,
            installation=installation,
        )

    async def remove(self, name: str) -> Credential:
        """Delete a credential. New calls no longer use it; calls in progress are not interrupted."""
        credential, is_left = await self._database.transaction(records.remove, self.source, name)
        log.info("credentials.removed", credential_name=name)
        self.secrets.forget(credential.allowance)
        if not is_left:
            await self._withdraw(credential)
        return credential

    async def test(self, name: str) -> CredentialCheck:
        """Check a credential with the upstream and store the result: valid or invalid.

        Raises `SecretUncheckable` or `UpstreamFailed` if the upstream could not be asked; then nothing is stored.
        """
        stored = await self._database.read(records.get, self.source, name)
        await self._require_rested(stored.credential)
        try:
            checked = await self._check(stored)
        except SecretRefused as refused:
            await self.secrets.mark_invalid(stored, refused.reason)
            if not await self._database.read(records.usable_of, stored.credential.allowance, self._authority.audience):
                await self._withdraw(stored.credential)
            account = stored.credential.account
            return CredentialCheck(name=name, is_valid=False, reason=refused.reason, account=account)
        await self._confirm(stored, checked)
        account = stored.credential.account if checked.account is None else checked.account.login
        return CredentialCheck(
            name=name,
            is_valid=True,
            account=account,
            scopes=checked.scopes,
            expires_at=checked.expires_at,
            left=checked.left,
        )

    async def secret_of(self, credential: str) -> str:
        """Return the secret for a credential of the gate. Raises `NoCredential` if no valid secret is left."""
        try:
            return await self.secrets.secret_of(credential)
        except NoCredential:
            await self._report_if_unserved(credential)
            raise

    async def rejected(self, credential: str, secret: str, reason: str) -> bool:
        """Handle a secret that the upstream rejected. Returns True if the allowance has another secret to try.

        If it returns False, the gate must retire the credential. If its pool has no valid credential left,
        `on_unserved` is called.
        """
        if await self.secrets.rejected(credential, secret, reason):
            return True
        await self._report_if_unserved(credential)
        return False

    async def pool_for(self, user_id: str) -> str:
        """Return the pool for the runs of a user: the user's own if it has a valid credential, else the shared one.

        Raises `NoCredential` if neither this process nor, as far as SQL knows, another one has a valid credential.
        """
        require_name("user_id", user_id)
        own = await self._database.read(records.pool_of_user, self.source, user_id, self._authority.audience)
        if own is not None:
            return own
        if not await self.serves(self.pool):
            removed = "" if self.secrets.borrowed is None else self._removed
            raise NoCredential(f"there is no valid credential for {user_id!r}{removed}: {how_to_get_one(self.source)}")
        return self.pool

    async def serves(self, pool: str) -> bool:
        """Whether this process or another one can make calls for a pool.

        SQL decides, also for tokens that processes hold in memory: a removed or rejected token is not used by any
        process, and a valid one serves runs that are started by a process without it.
        """
        return await self._database.read(records.is_served, pool, self._authority.audience)

    async def borrow(self, token: str) -> None:
        """Use a token that only this process holds in memory, unless a stored credential serves all users."""
        borrowed = await borrow(
            token, self._database, self._vault, self._authority, source=self.source, dismiss=self._dismiss
        )
        self.secrets.borrowed = borrowed
        if borrowed is not None:
            await self._before_registration()
            # No read of SQL, so that the token of the environment is used while the database is unavailable.
            await self._register_in_gate(borrowed.stored.credential.allowance, self.pool, self._limits)

    async def require_any(self) -> None:
        """Raise `InvalidSettings` with instructions if this process has no credential for any call.

        Raises `CannotDecrypt` if the key of a stored secret is missing.
        """
        audience = self._authority.audience
        usable = await self._database.read(records.usable, self.source, audience)
        for key_id, name in {one.sealed.key_id: one.credential.name for one in usable if one.sealed}.items():
            await self._vault.require_key(name, key_id)
        if self.secrets.borrowed is not None or usable:
            return
        present = await self.list()
        refused = [each.name for each in present if each.state is CredentialState.INVALID and each.audience == audience]
        others = sorted({each.audience for each in present} - {audience})
        known = f" ({', '.join(refused)}: rejected; see `tidegate credentials list`)" if refused else ""
        known += f" (stored credentials are only for {', '.join(others)})" if others else ""
        raise InvalidSettings(f"there is no credential for {audience}{known}: {how_to_get_one(self.source)}")

    async def rotate_key(self) -> Rotation:
        """Encrypt every secret with a new key."""
        return await rotate_key(
            self._database, self._vault, [found for made in self.holdings if (found := made()) is not None]
        )

    async def register(self) -> None:
        """Make the gate agree with SQL. Idempotent; correct at any time."""
        pools = await self._allowances()
        allowances = list(pools)
        await self._before_registration()
        for start in range(0, len(allowances), _AT_ONCE):
            some = allowances[start : start + _AT_ONCE]
            await asyncio.gather(*(self._register_with_limits(allowance, pools[allowance]) for allowance in some))
        # Credentials are written to SQL before they are registered, so the gate is read before SQL is read again.
        present = [member.name for member in (await self._gate.status(self.pool)).credentials]
        known = await self._allowances()
        for allowance in present:
            if known.get(allowance) != self.pool:
                await self._dismiss(allowance)

    async def register_one(self, allowance: str, pool: str) -> None:
        """Register an allowance in a pool; a retired one is used again."""
        await self._before_registration()
        await self._register_with_limits(allowance, pool)

    async def close(self) -> None:
        """Forget all secrets and end renewals."""
        await self.secrets.close()

    async def _register_with_limits(self, allowance: str, pool: str) -> None:
        limits = self._limits
        # Tokens of an app spend an allowance of their own, which no other program uses: there is nothing to leave.
        if await self._database.read(records.is_exclusive, allowance):
            limits = limits.model_copy(update={"floor": 0})
        await self._register_in_gate(allowance, pool, limits)

    async def _register_in_gate(self, allowance: str, pool: str, limits: CredentialLimits) -> None:
        try:
            await self._gate.register(allowance, pool=pool, limits=limits)
        except InvalidArgument:  # it is still registered in its former pool
            await self._gate.dismiss(allowance)
            await self._gate.register(allowance, pool=pool, limits=limits)

    @property
    def _removed(self) -> str:
        variable = token_variable(self.source)
        return f" ({variable} was removed or rejected while this process ran; restart the process to use it again)"

    async def _account_of(self, token: str, checked: SecretReport | None, name: str | None) -> Account:
        """The account of a token. Without a check, the same name is taken for the same account."""
        if checked is None:
            present = None if name is None else await self._database.read(records.find, self.source, name)
            if present is not None and present.credential.kind is CredentialKind.TOKEN:
                return Account(allowance=present.credential.allowance, login=present.credential.account)
            unknown = f"token-{(await self._vault.fingerprint(token))[:16]}"
            return Account(allowance=unknown, login="unknown")
        if checked.account is None:
            raise SecretUncheckable("its allowance is exhausted, so its account cannot be looked up")
        return checked.account

    async def _add(
        self,
        kind: CredentialKind,
        secret: str,
        account: Account,
        checked: SecretReport | None,
        *,
        owner: str,
        user_id: str | None,
        name: str | None,
        installation: Installation | None = None,
    ) -> Credential:
        """Encrypt a secret, store it as a credential, and add the credential to the gate."""
        name = require_text("name", name or await self._name_for(kind, account), _LONGEST_NAME)
        audience = self._authority.audience
        new = NewCredential(
            source=self.source,
            name=name,
            kind=kind,
            owner=require_text("owner", owner, _LONGEST_OWNER),
            account=account,
            audience=audience,
            pool=pool_of(self.source, user_id),
            user_id=user_id,
            details=details_of(checked, installation),
            sealed=await self._vault.seal(Label(name, kind, audience), secret),
            is_checked=checked is not None,
        )
        # First SQL, then the cache, then the gate: a permit that the gate gives from now on finds the new secret.
        credential = await self._database.transaction(records.put, new)
        log.info("credentials.added", credential_name=name, kind=str(kind), pool=new.pool)
        self.secrets.forget(credential.allowance)
        await self.register_one(credential.allowance, credential.pool)
        return credential

    async def _name_for(self, kind: CredentialKind, account: Account) -> str:
        """The default name: the login, or the name of the allowance if another account has that name."""
        if kind is CredentialKind.INSTALLATION or account.login == "unknown":
            return account.allowance
        present = await self._database.read(records.find, self.source, account.login)
        is_free = present is None or present.credential.allowance == account.allowance
        return account.login if is_free else account.allowance

    async def _check(self, stored: Stored) -> SecretReport:
        credential, borrowed = stored.credential, self.secrets.borrowed
        if stored.sealed is None:
            if borrowed is None or borrowed.stored.fingerprint != stored.fingerprint:
                raise InvalidArgument(
                    "name", credential.name, "is not stored; it is tested when a process with it starts"
                )
            return await self._authority.check(borrowed.token, identify=False)
        if credential.audience != self._authority.audience:
            raise InvalidArgument("name", credential.name, f"is only for {credential.audience}")
        secret = await self._vault.open(stored.label, stored.sealed)
        if credential.kind is CredentialKind.INSTALLATION:
            return await self._check_installation(installation_of(credential), secret)
        return await self._authority.check(secret, identify=True)

    async def _check_installation(self, installation: Installation, private_key: str) -> SecretReport:
        issued = await self._authority.issue(installation, private_key)
        return await self._authority.check(issued.token, identify=False)

    async def _confirm(self, stored: Stored, checked: SecretReport) -> None:
        """Mark a credential as valid. One that was stored without a check moves to the allowance of its account."""
        credential, account = stored.credential, checked.account
        details = {**credential.details, **details_of(checked)}
        await self._database.transaction(records.confirm, stored, details)
        allowance = credential.allowance
        if account is not None and account.allowance != allowance:
            await self._database.transaction(records.move, stored, account)
            # If another credential still uses the former allowance, `_dismiss` registers it again.
            await self._dismiss(allowance)
            allowance = account.allowance
        self.secrets.forget(credential.allowance)
        await self.register_one(allowance, credential.pool)

    async def _require_rested(self, credential: Credential) -> None:
        """Raise `NotNow` if the upstream blocked the credential, because a test is a call too."""
        for member in (await self._gate.status(credential.pool)).credentials:
            if member.name == credential.allowance and member.blocked_in_ms > 0:
                raise SecretUncheckable(f"the upstream asked for a pause of {member.blocked_in_ms / 1000:.0f} s more")

    async def _report_if_unserved(self, allowance: str) -> None:
        """Call `on_unserved` if the pool of this allowance has no valid credential left."""
        pool = await self._database.read(records.pool_of_allowance, allowance)
        if pool is not None and not await self.serves(pool):
            await self._on_unserved(pool)

    async def _withdraw(self, credential: Credential) -> None:
        await self._dismiss(credential.allowance)
        if not await self._database.read(records.is_served, credential.pool, credential.audience):
            await self._on_unserved(credential.pool)

    async def _allowances(self) -> Mapping[str, str]:
        """Usable allowances with their pools. Tokens in memory count only if no stored credential serves all users."""
        audience = self._authority.audience
        usable = await self._database.read(records.usable, self.source, audience)
        pools = {stored.credential.allowance: stored.credential.pool for stored in usable}
        if self.pool in pools.values():
            return pools
        return pools | dict.fromkeys(await self._database.read(records.borrowed, self.source, audience), self.pool)

    async def _dismiss(self, allowance: str) -> None:
        """Remove an allowance from the gate, and register it again if a credential for it was stored concurrently.

        Credentials are written to SQL before they are registered. An allowance that is removed here by mistake is
        therefore found in SQL afterwards; one that is stored later is also registered later.
        """
        await self._gate.dismiss(allowance)
        pool = (await self._allowances()).get(allowance)
        if pool is not None:
            await self.register_one(allowance, pool)
