"""Rows of credentials. Every function works in the caller's transaction; secrets are only handled encrypted."""

from collections.abc import Sequence
from datetime import datetime
from enum import StrEnum
from typing import Any

import msgspec
from sqlalchemy import ColumnElement, delete, select, update

from tidegate.core.errors import Conflict, NotFound
from tidegate.engine.credentials.authority import Account
from tidegate.engine.credentials.tables import credential_allowances, credentials
from tidegate.engine.credentials.vault import Label, Sealed
from tidegate.storage.sql import Transaction

_LONGEST_REASON = 500


class CredentialKind(StrEnum):
    """The kind of a credential, which decides how its secret is used."""

    TOKEN = "token"  # noqa: S105 - sent unchanged
    INSTALLATION = "installation"  # the key of an app, with which tokens are issued
    ENVIRONMENT = "environment"  # a token that processes hold in memory; not stored


class CredentialState(StrEnum):
    """Whether a secret may be used."""

    VALID = "valid"
    INVALID = "invalid"  # the upstream rejected it; valid again after a successful test, or with a new secret


class Credential(msgspec.Struct, frozen=True, kw_only=True):
    """A credential without its secret, as it is shown to users."""

    source: str
    name: str
    kind: CredentialKind
    owner: str
    account: str
    """The account at the upstream: a login, or an installation."""
    allowance: str
    """Its name in the gate; shared by all credentials of one account."""
    audience: str
    pool: str
    user_id: str | None
    """The id of the only user that it serves; None if it serves all users."""
    state: CredentialState
    details: dict[str, Any]
    created_at: datetime
    changed_at: datetime
    checked_at: datetime | None
    invalid_at: datetime | None
    invalid_reason: str | None


class Stored(msgspec.Struct, frozen=True, kw_only=True):
    """A credential with its encrypted secret."""

    id: int
    version: int
    credential: Credential
    sealed: Sealed | None
    fingerprint: str | None

    @property
    def label(self) -> Label:
        """The identity that the encrypted secret is bound to."""
        return Label(self.credential.name, self.credential.kind, self.credential.audience)

    def is_valid_token(self, fingerprint: str | None, audience: str) -> bool:
        """Whether this row describes the token with this fingerprint, and the token is valid at `audience`."""
        credential = self.credential
        is_ours = (self.fingerprint, credential.audience) == (fingerprint, audience)
        return fingerprint is not None and is_ours and credential.state is CredentialState.VALID


class NewCredential(msgspec.Struct, frozen=True, kw_only=True):
    """A credential to store, or the new secret of a stored one."""

    source: str
    name: str
    kind: CredentialKind
    owner: str
    account: Account
    audience: str
    pool: str
    user_id: str | None
    details: dict[str, Any]
    sealed: Sealed | None
    fingerprint: str | None = None
    is_checked: bool


class NameTaken(Conflict):
    """The name belongs to a credential of the same source with another account or kind."""

    def __init__(self, name: str, account: str) -> None:
        super().__init__(
            f"{name!r} is the name of a credential of {account}. Choose another name, or remove that one first"
        )
        self.name, self.account = name, account


class AllowanceElsewhere(Conflict):
    """The account already serves another pool, and its allowance cannot be spent twice."""

    def __init__(self, account: str, user_id: str | None) -> None:
        users = "everybody" if user_id is None else f"only the user {user_id!r}"
        super().__init__(
            f"{account} already serves {users}, and all its secrets share one allowance. Remove those credentials first"
        )
        self.account, self.user_id = account, user_id


def put(tx: Transaction, new: NewCredential) -> Credential:
    """Store a credential, or replace the secret of the credential with this name; it is valid from now on."""
    allowance = new.account.allowance
    _put_allowance(tx, new.source, new.account, audience=new.audience, pool=new.pool, user_id=new.user_id)
    values: dict[str, Any] = {
        "owner": new.owner,
        "details": new.details,
        "secret": None if new.sealed is None else new.sealed.text,
        "key_id": None if new.sealed is None else new.sealed.key_id,
        "fingerprint": new.fingerprint,
        "state": CredentialState.VALID,
        "changed_at": tx.now,
        "checked_at": tx.now if new.is_checked else None,
        "invalid_at": None,
        "invalid_reason": None,
    }
    key = {"source": new.source, "name": new.name}
    first = {**key, "kind": new.kind, "allowance": allowance, "version": 1, "created_at": tx.now}
    present, is_new = tx.insert_or_lock(credentials, values | first, key=tuple(key))
    if not is_new:
        if (present.allowance, present.kind) != (allowance, new.kind):
            raise NameTaken(new.name, get(tx, new.source, new.name).credential.account)
        # A late rejection of the former secret carries the former version, and changes nothing.
        values["version"] = credentials.c.version + 1
        tx.execute(update(credentials).where(credentials.c.id == present.id).values(values))
    return get(tx, new.source, new.name).credential


def adopt(tx: Transaction, new: NewCredential) -> tuple[Stored, Stored | None]:
    """Store `new` as the token that processes hold in memory; return its row, and the row that it replaced, if any.

    When several processes start with the same token, the first one writes the row and the others read it, so its id
    stays valid for all. There is one row, so a token of another account replaces the previous one.
    """
    _put_allowance(tx, new.source, new.account, audience=new.audience, pool=new.pool, user_id=new.user_id)
    before = _one(tx, *_named(new.source, new.name), lock=True)
    if before is not None and before.is_valid_token(new.fingerprint, new.audience):
        return before, None
    try:
        put(tx, new)
    except NameTaken:
        before = get(tx, new.source, new.name)
        if before.credential.kind is not CredentialKind.ENVIRONMENT:
            raise
        remove(tx, new.source, new.name)
        put(tx, new)
    return get(tx, new.source, new.name), before


def _put_allowance(
    tx: Transaction, source: str, account: Account, *, audience: str, pool: str, user_id: str | None
) -> None:
    """Insert or lock the row of an allowance; raises if it serves another pool. Serializes concurrent inserts."""
    at, name = credential_allowances.c, account.allowance
    values = {"source": source, "audience": audience, "account": account.login, "pool": pool, "user_id": user_id}
    present, _ = tx.insert_or_lock(credential_allowances, {"name": name, **values}, key="name")
    if (present.source, present.pool, present.audience) != (source, pool, audience) and _ids_of(tx, name):
        raise AllowanceElsewhere(present.account, present.user_id)
    tx.execute(update(credential_allowances).where(at.name == name).values(values))  # logins change


def get(tx: Transaction, source: str, name: str) -> Stored:
    """Return one credential; raises `NotFound`."""
    found = find(tx, source, name)
    if found is None:
        raise NotFound("credential", name)
    return found


def find(tx: Transaction, source: str, name: str) -> Stored | None:
    """Return one credential, or None."""
    return _one(tx, *_named(source, name))


def everything(tx: Transaction, source: str | None = None) -> list[Stored]:
    """All credentials of one source or of all sources, oldest first."""
    return _select(tx) if source is None else _select(tx, credentials.c.source == source)


def usable(tx: Transaction, source: str, audience: str) -> list[Stored]:
    """Stored, valid credentials of a source for one audience, oldest first."""
    return _select(
        tx,
        credentials.c.source == source,
        credential_allowances.c.audience == audience,
        credentials.c.state == CredentialState.VALID,
        credentials.c.secret.is_not(None),
    )


def usable_of(tx: Transaction, allowance: str, audience: str) -> list[Stored]:
    """Stored credentials that may spend an allowance, in the order in which they are used.

    The order is stable, because the upstream answers conditional requests per secret.
    """
    return _select(
        tx,
        credentials.c.allowance == allowance,
        credential_allowances.c.audience == audience,
        credentials.c.state == CredentialState.VALID,
        credentials.c.secret.is_not(None),
    )


def is_exclusive(tx: Transaction, allowance: str) -> bool:
    """Whether an allowance is that of an installation of an app, which only tokens of the app spend."""
    found = select(credentials.c.id).where(
        credentials.c.allowance == allowance, credentials.c.kind == CredentialKind.INSTALLATION
    )
    return tx.execute(found.limit(1)).first() is not None


def borrowed_of(tx: Transaction, allowance: str) -> list[Stored]:
    """Valid rows of an allowance for tokens that processes hold in memory."""
    return _select(
        tx,
        credentials.c.allowance == allowance,
        credentials.c.state == CredentialState.VALID,
        credentials.c.kind == CredentialKind.ENVIRONMENT,
    )


def is_served(tx: Transaction, pool: str, audience: str, *, by_stored: bool = False) -> bool:
    """Whether a valid credential for a pool and audience is recorded.

    Tokens that processes hold in memory count too, unless `by_stored` is set.
    """
    at = credential_allowances.c
    wanted = [at.pool == pool, at.audience == audience, credentials.c.state == CredentialState.VALID]
    if by_stored:
        wanted.append(credentials.c.secret.is_not(None))
    found = select(credentials.c.id).join_from(credentials, credential_allowances).where(*wanted).limit(1)
    return tx.execute(found).first() is not None


def audiences_of(tx: Transaction, pool: str) -> list[str]:
    """The audiences for which a pool has a valid credential."""
    at = credential_allowances.c
    found = select(at.audience).join_from(credentials, credential_allowances)
    return [
        row[0]
        for row in tx.execute(found.where(at.pool == pool, credentials.c.state == CredentialState.VALID).distinct())
    ]


def pool_of_user(tx: Transaction, source: str, user_id: str, audience: str) -> str | None:
    """The pool of a user, if the user has a valid credential."""
    at = credential_allowances.c
    found = (
        select(at.pool)
        .join_from(credentials, credential_allowances)
        .where(
            at.source == source,
            at.user_id == user_id,
            at.audience == audience,
            credentials.c.state == CredentialState.VALID,
        )
        .limit(1)
    )
    return tx.execute(found).scalar()


def pool_of_allowance(tx: Transaction, allowance: str) -> str | None:
    """The pool that an allowance serves, or None."""
    at = credential_allowances.c
    return tx.execute(select(at.pool).where(at.name == allowance)).scalar()


def borrowed(tx: Transaction, source: str, audience: str) -> list[str]:
    """The allowances of tokens that processes hold in memory and that were valid when they were last used."""
    found = _select(
        tx,
        credentials.c.source == source,
        credential_allowances.c.audience == audience,
        credentials.c.kind == CredentialKind.ENVIRONMENT,
        credentials.c.state == CredentialState.VALID,
    )
    return [stored.credential.allowance for stored in found]


def mark_invalid(tx: Transaction, stored: Stored, reason: str) -> bool:
    """Mark a secret as rejected by the upstream; False if it was replaced or marked before."""
    done = tx.execute(
        update(credentials)
        .where(
            credentials.c.id == stored.id,
            credentials.c.version == stored.version,
            credentials.c.state == CredentialState.VALID,
        )
        .values(
            state=CredentialState.INVALID, invalid_at=tx.now, checked_at=tx.now, invalid_reason=reason[:_LONGEST_REASON]
        )
    )
    return done.rowcount == 1


def confirm(tx: Transaction, stored: Stored, details: dict[str, Any]) -> bool:
    """Mark a secret as accepted by the upstream; False if it was replaced in the meantime."""
    done = tx.execute(
        update(credentials)
        .where(credentials.c.id == stored.id, credentials.c.version == stored.version)
        .values(state=CredentialState.VALID, checked_at=tx.now, invalid_at=None, invalid_reason=None, details=details)
    )
    return done.rowcount == 1


def move(tx: Transaction, stored: Stored, account: Account) -> None:
    """Assign a credential to the allowance of its account; raises if that one serves another pool."""
    old = stored.credential
    _put_allowance(tx, old.source, account, audience=old.audience, pool=old.pool, user_id=old.user_id)
    tx.execute(update(credentials).where(credentials.c.id == stored.id).values(allowance=account.allowance))
    _forget_allowance(tx, old.allowance)


def remove(tx: Transaction, source: str, name: str) -> tuple[Credential, bool]:
    """Delete a credential; also return whether its allowance has a valid one left. Raises `NotFound`."""
    stored = get(tx, source, name)
    allowance = stored.credential.allowance
    at = credential_allowances.c
    # The allowance is locked first, as by `_put_allowance`: a credential that is added at the same time keeps it.
    tx.execute(select(at.name).where(at.name == allowance).with_for_update())
    tx.execute(delete(credentials).where(credentials.c.id == stored.id))
    _forget_allowance(tx, allowance)
    return stored.credential, bool(_ids_of(tx, allowance, credentials.c.state == CredentialState.VALID))


def _forget_allowance(tx: Transaction, allowance: str) -> None:
    """Delete an allowance that has no credential left."""
    if not _ids_of(tx, allowance):
        tx.execute(delete(credential_allowances).where(credential_allowances.c.name == allowance))


def _ids_of(tx: Transaction, allowance: str, *wanted: ColumnElement[bool]) -> list[int]:
    """Ids of the credentials of an allowance: locks them, and so reads the latest state, not the snapshot's."""
    found = select(credentials.c.id).where(credentials.c.allowance == allowance, *wanted).with_for_update()
    return [row.id for row in tx.execute(found)]


def has_secrets(tx: Transaction) -> bool:
    """Whether any secret is stored."""
    found = select(credentials.c.id).where(credentials.c.secret.is_not(None)).limit(1)
    return tx.execute(found).first() is not None


def reseal(tx: Transaction, stored: Stored, sealed: Sealed) -> bool:
    """Replace a secret by its re-encrypted form; False if the secret was replaced in the meantime."""
    done = tx.execute(
        update(credentials)
        .where(credentials.c.id == stored.id, credentials.c.version == stored.version)
        .values(secret=sealed.text, key_id=sealed.key_id)
    )
    return done.rowcount == 1


def _named(source: str, name: str) -> tuple[ColumnElement[bool], ColumnElement[bool]]:
    return credentials.c.source == source, credentials.c.name == name


def _one(tx: Transaction, *wanted: ColumnElement[bool], lock: bool = False) -> Stored | None:
    return next(iter(_select(tx, *wanted, lock=lock)), None)


def _select(tx: Transaction, *wanted: ColumnElement[bool], lock: bool = False) -> list[Stored]:
    at = credential_allowances.c
    found = (
        select(credentials, at.audience, at.account, at.pool, at.user_id)
        .join_from(credentials, credential_allowances)
        .where(*wanted)
        .order_by(credentials.c.id)
    )
    rows: Sequence[Any] = tx.execute(found.with_for_update() if lock else found).all()
    return [_stored(row) for row in rows]


_PLAIN = (
    *("source", "name", "owner", "account", "allowance", "audience", "pool", "user_id", "details"),
    *("created_at", "changed_at", "checked_at", "invalid_at", "invalid_reason"),
)


def _stored(row: Any) -> Stored:
    plain = {name: getattr(row, name) for name in _PLAIN}
    return Stored(
        id=row.id,
        version=row.version,
        credential=Credential(kind=CredentialKind(row.kind), state=CredentialState(row.state), **plain),
        sealed=None if row.secret is None else Sealed(row.secret, row.key_id),
        fingerprint=row.fingerprint,
    )
