"""Identities of a deployment: adds, removes and lists them, provides their headers, and registers them with the gate.

SQL is the source of truth and is written first; the gate is updated right afterwards. If the process dies in between,
the next leader updates the gate. If no identity is stored, calls use the built-in one, which names this crawler.
"""

import asyncio
import re
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from time import monotonic

import msgspec

from tidegate.core.clock import milliseconds
from tidegate.core.errors import InvalidArgument, NoCredential, NotFound
from tidegate.core.telemetry.logs import get_logger
from tidegate.engine.credentials.vault import Vault
from tidegate.primitives.gate import CredentialRecord, Gate, PoolRecord
from tidegate.storage.sql import Database, Transaction
from tidegate.systems.crawl import health_records
from tidegate.systems.crawl import identity_records as records
from tidegate.systems.crawl.health_records import HostHealth
from tidegate.systems.crawl.host_registry import POOL, HostRegistry
from tidegate.systems.crawl.identity_records import StoredIdentity, credential_of, name_of
from tidegate.systems.crawl.settings import CrawlSettings

log = get_logger(__name__)

BUILT_IN = "tidegate"
"""The identity that is used if none is stored."""
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,80}")
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_HEADER_VALUE = re.compile(r"[^\r\n\0]*")
_LARGEST = 16 * 1024
_RESERVED_HEADERS = frozenset(
    {
        "accept-encoding",
        "connection",
        "content-length",
        "host",
        "if-modified-since",
        "if-none-match",
        "keep-alive",
        "te",
        "transfer-encoding",
        "upgrade",
    }
)
"""Headers that belong to a call or a connection, not to an identity."""
_AT_ONCE = 50
_KEPT_S = 30.0
"""How long headers are used before SQL is read again."""


class Identity(msgspec.Struct, frozen=True, kw_only=True):
    """An identity without its headers, as it is shown to users."""

    name: str
    enabled: bool = True
    built_in: bool = False
    created_at: datetime | None = None
    changed_at: datetime | None = None
    health: Sequence[HostHealth] = ()
    """Its health at hosts that have refused it."""


class IdentityRegistry:
    """Manages identities, and the hosts' pace, because a host's delay may depend on the User-Agent."""

    def __init__(self, database: Database, gate: Gate, vault: Vault, settings: CrawlSettings) -> None:
        self._database, self._gate, self._vault, self._settings = database, gate, vault, settings
        self.hosts = HostRegistry(database, gate, settings, user_agents=self.user_agents)
        self._opened: dict[str, str] = {}
        """Decrypted headers, by their encrypted form in SQL."""
        self._held: dict[str, tuple[str, float]] = {}
        self.agents: Mapping[str, str] = {}
        """The User-Agent of each identity in use, by its name in the gate, as last read by this process."""

    async def add(self, name: str, headers: Mapping[str, str]) -> Identity:
        """Store an identity, or replace the headers of the one with this name; it is used from now on."""
        require_identity_name(name)
        plain = msgspec.json.encode(_require_headers(headers)).decode()
        sealed = await self._vault.seal(records.label_of(name), plain)
        await self._database.transaction(records.put, name, sealed)
        self._held.pop(name, None)
        log.info("crawl.identity_added", identity=name)
        await self._register()
        return await self.get(name)

    async def remove(self, name: str) -> None:
        """Delete an identity; calls in progress finish normally. Raises `NotFound`."""
        await self._database.transaction(_remove, name)
        self._held.pop(name, None)
        log.info("crawl.identity_removed", identity=name)
        await self.register()

    async def enable(self, name: str) -> None:
        """Use an identity again. Raises `NotFound`."""
        await self._database.transaction(_enable, name, True)
        await self._register()

    async def disable(self, name: str) -> None:
        """Stop using an identity, and keep it. Raises `NotFound`."""
        await self._database.transaction(_enable, name, False)
        self._held.pop(name, None)
        await self.register()

    async def get(self, name: str) -> Identity:
        """Return one identity; raises `NotFound`."""
        every = {one.name: one for one in await self.list()}
        if name not in every:
            raise NotFound("identity", name)
        return every[name]

    async def list(self) -> Sequence[Identity]:
        """All identities, by name, with their health at hosts; read from SQL only, so it works without Valkey."""
        return await self._database.read(listed)

    async def secret_of(self, credential: str) -> str:
        """The headers of an identity as JSON, which callers do not keep; raises `NoCredential` if it is not in use."""
        name = name_of(credential)
        held = self._held.get(name)
        # Another process may remove or disable an identity: its headers are used for 30 s at most.
        if held is not None and monotonic() - held[1] < _KEPT_S:
            return held[0]
        used = await self._database.read(_used)
        if name not in used:
            self._held.pop(name, None)
            raise NoCredential(f"the identity {name!r} is not used any more")
        plain = await self._open(used[name])
        self._held[name] = plain, monotonic()
        return plain

    async def user_agents(self) -> Collection[str]:
        """The User-Agents of all identities in use."""
        used = await self._database.read(_used)
        opened = {name: msgspec.json.decode(await self._open(one), type=dict[str, str]) for name, one in used.items()}
        known = {one.headers for one in used.values() if one is not None}
        # Forget decrypted headers that are not in use any more.
        self._opened = {sealed: plain for sealed, plain in self._opened.items() if sealed in known}
        self.agents = {
            credential_of(name): value
            for name, headers in opened.items()
            for header, value in headers.items()
            if header.lower() == "user-agent"
        }
        return set(self.agents.values())

    async def pool_for(self, user_id: str) -> str:
        """The pool of all crawls; raises `NoCredential` if every identity is disabled."""
        if not await self._database.read(_used):
            raise NoCredential(
                f"there is no identity for {user_id!r}: all identities are disabled. Enable or add one: "
                "tidegate crawl identities enable NAME"
            )
        return POOL

    async def register(self) -> None:
        """Synchronize the gate with SQL. Can be repeated at any time.

        Paces and rests come first, because a gate that lost its data uses an identity as soon as it knows it.
        """
        await self.hosts.restore()
        used, health = await self._database.read(_used), await self._database.read(health_records.health_of)
        # Rests before the identities, for the same reason.
        await self._gate.remind(self._memory({name: health.get(name, []) for name in used}))
        names, limits = list(used), self._settings.identity_limits
        for start in range(0, len(names), _AT_ONCE):
            some = [credential_of(name) for name in names[start : start + _AT_ONCE]]
            await asyncio.gather(*(self._gate.register(one, pool=POOL, limits=limits) for one in some))
        # A new identity is written to SQL before the gate; so the gate must be read before SQL.
        present = [member.name for member in (await self._gate.status(POOL)).credentials]
        known = {credential_of(name) for name in await self._database.read(_used)}
        for credential in present:
            # Removed or disabled, possibly by a process that died before it told the gate.
            if credential not in known:
                await self._gate.dismiss(credential)

    async def key_ids(self) -> set[str]:
        """The keys that stored identities need; raises `CannotDecrypt` if one of them is missing."""
        stored = await self._database.read(records.everything)
        for one in stored:
            await self._open(one)
        return {one.key_id for one in stored}

    async def reseal(self, key_id: str) -> int:
        """Re-encrypt with the current key what another key encrypted; return the number of identities."""
        done = 0
        for one in await self._database.read(records.everything):
            if one.key_id != key_id:
                sealed = await self._vault.seal(one.label, await self._open(one))
                done += await self._database.transaction(records.reseal, one, sealed)
        return done

    async def _register(self) -> None:
        """Register a new User-Agent: Crawl-delays for it are computed first."""
        await self.hosts.update_delays()
        await self.register()

    async def _open(self, stored: StoredIdentity | None) -> str:
        if stored is None:
            return msgspec.json.encode({"User-Agent": self._settings.honest_user_agent}).decode()
        if stored.headers not in self._opened:
            self._opened[stored.headers] = await self._vault.open(stored.label, stored.sealed)
        return self._opened[stored.headers]

    def _memory(self, health: Mapping[str, Sequence[HostHealth]]) -> PoolRecord:
        now = self._database.clock.now()
        notes = [
            CredentialRecord(
                credential=credential_of(name),
                bucket=one.host,
                blocked_ms=max(1, milliseconds(one.resting_until - now)),
                rests_bucket=True,
            )
            for name, with_hosts in health.items()
            for one in with_hosts
            if one.resting_until is not None
        ]
        return PoolRecord(pool=POOL, started=0, running=0, notes=notes)

    def __repr__(self) -> str:
        return "IdentityBook()"


def require_identity_name(name: str) -> str:
    """Return a valid name of an identity; raises `InvalidArgument` otherwise."""
    if not _NAME.fullmatch(name):
        raise InvalidArgument("name", name[:100], "must be 1 to 80 of A-Z a-z 0-9 _ . -")
    if name == BUILT_IN:
        raise InvalidArgument("name", name, "is the built-in identity; it is changed by the setting `crawl.user_agent`")
    return name


def _require_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """Return valid headers. Error messages name a reserved header, but never show values."""
    if not all(_HEADER_NAME.fullmatch(name) and _HEADER_VALUE.fullmatch(value) for name, value in headers.items()):
        raise InvalidArgument("headers", "…", "each must have the name of a header, and a value of one line")
    lower = [name.lower() for name in headers]
    for name in lower:
        if name in _RESERVED_HEADERS:
            raise InvalidArgument("headers", name, "is set for each call, and cannot be part of an identity")
    if len(set(lower)) < len(lower):
        raise InvalidArgument("headers", "…", "one of them is there twice")
    if not any(name.lower() == "user-agent" and value.strip() for name, value in headers.items()):
        raise InvalidArgument("headers", sorted(lower), "must name the crawler: a User-Agent is missing")
    if sum(len(name) + len(value) for name, value in headers.items()) > _LARGEST:
        raise InvalidArgument("headers", "…", f"must have at most {_LARGEST} characters together")
    return dict(headers)


def _used(tx: Transaction) -> dict[str, StoredIdentity | None]:
    """Identities that may make calls, by name; the built-in one, which has no row, if none is stored."""
    stored = records.everything(tx)
    # If identities are stored and all are disabled, no call is made: the built-in one must not replace them.
    return {one.name: one for one in stored if one.enabled} if stored else {BUILT_IN: None}


def listed(tx: Transaction) -> Sequence[Identity]:
    """All identities, by name, with their health at hosts."""
    health = health_records.health_of(tx)
    stored = records.everything(tx)
    if not stored:
        return [Identity(name=BUILT_IN, built_in=True, health=health.get(BUILT_IN, []))]
    return [
        Identity(
            name=one.name,
            enabled=one.enabled,
            created_at=one.created_at,
            changed_at=one.changed_at,
            health=health.get(one.name, []),
        )
        for one in stored
    ]


def _remove(tx: Transaction, name: str) -> None:
    records.remove(tx, name)
    health_records.forget_health(tx, name)


def _enable(tx: Transaction, name: str, is_enabled: bool) -> None:
    records.enable(tx, name, enabled=is_enabled)
