"""Uses the token of the environment, which is kept in memory only.

It serves the shared pool while no stored credential does. What is known about it is stored under a keyed hash, without
the token: its account, so that it need not be looked up again, and whether it was rejected.
"""

from collections.abc import Awaitable, Callable

from tidegate.core.errors import InvalidSettings
from tidegate.core.telemetry.logs import get_logger
from tidegate.core.telemetry.redaction import redact_text
from tidegate.engine.credentials import records
from tidegate.engine.credentials.authority import Authority, SecretRefused, SecretUncheckable
from tidegate.engine.credentials.checks import details_of, require_token
from tidegate.engine.credentials.pools import pool_of, token_variable
from tidegate.engine.credentials.records import CredentialKind, NewCredential
from tidegate.engine.credentials.secret_cache import EnvironmentCredential
from tidegate.engine.credentials.vault import Vault
from tidegate.storage.sql import Database, Transaction

log = get_logger(__name__)


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
