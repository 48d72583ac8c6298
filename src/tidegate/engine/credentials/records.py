"""What is written about credentials; every function works in the caller's transaction. No secret leaves from here
but encrypted.
"""

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


class Kind(StrEnum):
    """What a secret is."""

    TOKEN = "token"  # noqa: S105 - sent as it stands
    INSTALLATION = "installation"  # the key of an app, which is issued tokens
    ENVIRONMENT = "environment"  # a token that processes have in memory; not stored


class State(StrEnum):
    """Whether a secret is used."""

    VALID = "valid"
    INVALID = "invalid"  # the upstream refused it; it is good again after a test that succeeds, or with a new secret


class Credential(msgspec.Struct, frozen=True, kw_only=True):
    """A credential as everybody may see it: without its secret."""

    source: str
    name: str
    kind: Kind
    owner: str
    account: str
    """Whose it is at the upstream: a login, or an installation."""
    allowance: str
    """What the gate knows it by; shared by all credentials of one account."""
    audience: str
    pool: str
    user_id: str | None
    """The only user whose runs it serves; None where it serves everybody."""
    state: State
    details: dict[str, Any]
    created_at: datetime
    changed_at: datetime
    checked_at: datetime | None
    invalid_at: datetime | None
    invalid_reason: str | None


class Stored(msgspec.Struct, frozen=True, kw_only=True):
    """A credential with its secret, encrypted."""

    id: int
    version: int
    credential: Credential
    sealed: Sealed | None
    fingerprint: str | None

    @property
    def label(self) -> Label:
        """What its secret is bound to."""
        return Label(self.credential.name, self.credential.kind, self.credential.audience)

    def is_valid_token(self, fingerprint: str | None, audience: str) -> bool:
        """Whether this is the row of a token that is not stored, and that token is good at `audience`."""
        credential = self.credential
        is_ours = (self.fingerprint, credential.audience) == (fingerprint, audience)
        return fingerprint is not None and is_ours and credential.state is State.VALID


class NewCredential(msgspec.Struct, frozen=True, kw_only=True):
    """A credential that is to be stored, or one whose secret is to be replaced."""

    source: str
    name: str
    kind: Kind
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
    """The name belongs to a credential of the same source, and of another account or kind."""

    def __init__(self, name: str, account: str) -> None:
        super().__init__(
            f"{name!r} is the name of a credential of {account}. Choose another name, or remove that one first"
        )
        self.name, self.account = name, account


class AllowanceElsewhere(Conflict):
    """The account serves another pool already, and its allowance cannot be spent twice."""

    def __init__(self, account: str, user_id: str | None) -> None:
        whom = "everybody" if user_id is None else f"only the user {user_id!r}"
        super().__init__(
            f"{account} already serves {whom}, and all its secrets share one allowance. Remove those credentials first"
        )
        self.account, self.user_id = account, user_id


def put(tx: Transaction, new: NewCredential) -> Credential:
    """Store a credential, or replace the secret of the one of this name; it is valid from now on."""
    allowance = new.account.allowance
    _put_allowance(tx, new.source, new.account, audience=new.audience, pool=new.pool, user_id=new.user_id)
    values: dict[str, Any] = {
        "owner": new.owner,
        "details": new.details,
        "secret": None if new.sealed is None else new.sealed.text,
        "key_id": None if new.sealed is None else new.sealed.key_id,
        "fingerprint": new.fingerprint,
        "state": State.VALID,
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
        values["version"] = credentials.c.version + 1
        tx.execute(update(credentials).where(credentials.c.id == present.id).values(values))
    return get(tx, new.source, new.name).credential


def adopt(tx: Transaction, new: NewCredential) -> tuple[Stored, Stored | None]:
    """Make `new` the token that processes have in memory; return its row, and the row that it replaced, if any.

    Of several processes that start with the same token, the first one writes the row and the others read it: each of
    them may hold its number. A token of another account takes the place of the one before, of which there is one row.
    """
    _put_allowance(tx, new.source, new.account, audience=new.audience, pool=new.pool, user_id=new.user_id)
    before = _one(tx, *_named(new.source, new.name), lock=True)
    if before is not None and before.is_valid_token(new.fingerprint, new.audience):
        return before, None
    try:
        put(tx, new)
    except NameTaken:
        before = get(tx, new.source, new.name)
        if before.credential.kind is not Kind.ENVIRONMENT:
            raise
        remove(tx, new.source, new.name)
        put(tx, new)
    return get(tx, new.source, new.name), before


def _put_allowance(
    tx: Transaction, source: str, account: Account, *, audience: str, pool: str, user_id: str | None
) -> None:
    """Its row, locked; raise where it serves another pool. Of two who add at once, one waits here for the other."""
    at, name = credential_allowances.c, account.allowance
    values = {"source": source, "audience": audience, "account": account.login, "pool": pool, "user_id": user_id}
    present, _ = tx.insert_or_lock(credential_allowances, {"name": name, **values}, key="name")
    if (present.source, present.pool, present.audience) != (source, pool, audience) and _ids_of(tx, name):
        raise AllowanceElsewhere(present.account, present.user_id)
    tx.execute(update(credential_allowances).where(at.name == name).values(values))  # logins change


def get(tx: Transaction, source: str, name: str) -> Stored:
    """One credential; raise `NotFound` where there is none."""
    found = find(tx, source, name)
    if found is None:
        raise NotFound("credential", name)
    return found


def find(tx: Transaction, source: str, name: str) -> Stored | None:
    """One credential, if there is one."""
    return _one(tx, *_named(source, name))


def everything(tx: Transaction, source: str | None = None) -> list[Stored]:
    """All credentials, of one source or of all, the oldest first."""
    return _select(tx) if source is None else _select(tx, credentials.c.source == source)


def usable(tx: Transaction, source: str, audience: str) -> list[Stored]:
    """The stored ones of a source that may be used at a place, the oldest first."""
    return _select(
        tx,
        credentials.c.source == source,
        credential_allowances.c.audience == audience,
        credentials.c.state == State.VALID,
        credentials.c.secret.is_not(None),
    )


def usable_of(tx: Transaction, allowance: str, audience: str) -> list[Stored]:
    """The stored ones that may spend an allowance, in the order in which they are used.

    Always the same one first: what the upstream tells of unchanged things, it tells for one secret only.
    """
    return _select(
        tx,
        credentials.c.allowance == allowance,
        credential_allowances.c.audience == audience,
        credentials.c.state == State.VALID,
        credentials.c.secret.is_not(None),
    )


def borrowed_of(tx: Transaction, allowance: str) -> list[Stored]:
    """The valid ones of an allowance that are not stored, since processes have them in memory."""
    return _select(
        tx,
        credentials.c.allowance == allowance,
        credentials.c.state == State.VALID,
        credentials.c.kind == Kind.ENVIRONMENT,
    )


def is_served(tx: Transaction, pool: str, audience: str, *, by_stored: bool = False) -> bool:
    """Whether anybody may make calls for a pool at one place, for all that is written.

    A token that processes have in memory counts too, unless it has to be done `by_stored` ones.
    """
    at = credential_allowances.c
    wanted = [at.pool == pool, at.audience == audience, credentials.c.state == State.VALID]
    if by_stored:
        wanted.append(credentials.c.secret.is_not(None))
    found = select(credentials.c.id).join_from(credentials, credential_allowances).where(*wanted).limit(1)
    return tx.execute(found).first() is not None


def audiences_of(tx: Transaction, pool: str) -> list[str]:
    """The places at which anybody may make calls for a pool."""
    at = credential_allowances.c
    found = select(at.audience).join_from(credentials, credential_allowances)
    return [row[0] for row in tx.execute(found.where(at.pool == pool, credentials.c.state == State.VALID).distinct())]


def pool_of_user(tx: Transaction, source: str, user_id: str, audience: str) -> str | None:
    """The pool of a user who has a valid credential of his own."""
    at = credential_allowances.c
    found = (
        select(at.pool)
        .join_from(credentials, credential_allowances)
        .where(at.source == source, at.user_id == user_id, at.audience == audience, credentials.c.state == State.VALID)
        .limit(1)
    )
    return tx.execute(found).scalar()


def pool_of_allowance(tx: Transaction, allowance: str) -> str | None:
    """The pool that an allowance serves."""
    at = credential_allowances.c
    return tx.execute(select(at.pool).where(at.name == allowance)).scalar()


def borrowed(tx: Transaction, source: str, audience: str) -> list[str]:
    """The allowances of tokens that processes have in memory, and that were good when they were last used."""
    found = _select(
        tx,
        credentials.c.source == source,
        credential_allowances.c.audience == audience,
        credentials.c.kind == Kind.ENVIRONMENT,
        credentials.c.state == State.VALID,
    )
    return [stored.credential.allowance for stored in found]


def condemn(tx: Transaction, stored: Stored, reason: str) -> bool:
    """Note that the upstream refused this secret; False if it has another one by now, or was condemned before."""
    done = tx.execute(
        update(credentials)
        .where(
            credentials.c.id == stored.id,
            credentials.c.version == stored.version,
            credentials.c.state == State.VALID,
        )
        .values(state=State.INVALID, invalid_at=tx.now, checked_at=tx.now, invalid_reason=reason[:_LONGEST_REASON])
    )
    return done.rowcount == 1


def confirm(tx: Transaction, stored: Stored, details: dict[str, Any]) -> bool:
    """Note that the upstream takes this secret; False if it has another one by now."""
    done = tx.execute(
        update(credentials)
        .where(credentials.c.id == stored.id, credentials.c.version == stored.version)
        .values(state=State.VALID, checked_at=tx.now, invalid_at=None, invalid_reason=None, details=details)
    )
    return done.rowcount == 1


def move(tx: Transaction, stored: Stored, account: Account) -> None:
    """Let a credential spend the allowance that turned out to be its own; raise where that one serves another pool."""
    old = stored.credential
    _put_allowance(tx, old.source, account, audience=old.audience, pool=old.pool, user_id=old.user_id)
    tx.execute(update(credentials).where(credentials.c.id == stored.id).values(allowance=account.allowance))
    _forget_allowance(tx, old.allowance)


def remove(tx: Transaction, source: str, name: str) -> tuple[Credential, bool]:
    """Delete a credential; also tell whether a valid one is left for its allowance. Raise `NotFound`."""
    stored = get(tx, source, name)
    allowance = stored.credential.allowance
    at = credential_allowances.c
    tx.execute(select(at.name).where(at.name == allowance).with_for_update())
    tx.execute(delete(credentials).where(credentials.c.id == stored.id))
    _forget_allowance(tx, allowance)
    return stored.credential, bool(_ids_of(tx, allowance, credentials.c.state == State.VALID))


def _forget_allowance(tx: Transaction, allowance: str) -> None:
    """An allowance is there as long as it has a credential."""
    if not _ids_of(tx, allowance):
        tx.execute(delete(credential_allowances).where(credential_allowances.c.name == allowance))


def _ids_of(tx: Transaction, allowance: str, *wanted: ColumnElement[bool]) -> list[int]:
    """Those that spend an allowance, as they are at this moment and not as they were when the transaction began."""
    found = select(credentials.c.id).where(credentials.c.allowance == allowance, *wanted).with_for_update()
    return [row.id for row in tx.execute(found)]


def has_secrets(tx: Transaction) -> bool:
    """Whether any secret is stored."""
    found = select(credentials.c.id).where(credentials.c.secret.is_not(None)).limit(1)
    return tx.execute(found).first() is not None


def reseal(tx: Transaction, stored: Stored, sealed: Sealed) -> bool:
    """Replace a secret by the same one, encrypted anew; False if it was replaced by another meanwhile."""
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
        credential=Credential(kind=Kind(row.kind), state=State(row.state), **plain),
        sealed=None if row.secret is None else Sealed(row.secret, row.key_id),
        fingerprint=row.fingerprint,
    )
