"""An installation with its credentials, and a GitHub that they are for."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from sqlalchemy import text

from tidegate.connections import build_context
from tidegate.engine.source_cell import build_credential_manager
from tidegate.engine.upstream import UpstreamClient
from tidegate.primitives.gate import CredentialStatus
from tidegate.settings import Settings
from tidegate.storage.sql import Database, Transaction
from tidegate.storage.valkey import Valkey
from tidegate.system import Context
from tidegate.systems.crawl.plugin import CrawlPlugin
from tidegate.systems.github import GithubSettings
from tidegate.systems.github.plugin import GithubPlugin
from tidegate_simulators.github import GithubSimulator, LimitSettings, SimulatorConfig, WorldShape

APP, INSTALLATION = 71, 5
POOL = "github"


class CredentialHarness:
    """One process's hold on the credentials; `again` gives another's."""

    def __init__(self, settings: Settings, parts: Context, sim: GithubSimulator, client: UpstreamClient) -> None:
        self.settings, self.sim, self.client = settings, sim, client
        self.parts = parts = replace(parts, settings=settings)
        self.database, self.gate = parts.database, parts.gate
        self.unserved: list[str] = []
        """Pools that nobody was left in."""
        plugin = GithubPlugin(settings)
        self.book = build_credential_manager(parts, plugin, client, on_unserved=self._note_unserved)
        self.book.holdings.append(lambda: CrawlPlugin(settings).identities(parts, self.book.vault))

    def again(self, **changes: object) -> "CredentialHarness":
        """The same installation as another process sees it."""
        return CredentialHarness(self.settings.model_copy(update=changes), self.parts, self.sim, self.client)

    async def _note_unserved(self, pool: str) -> None:
        self.unserved.append(pool)

    def token(self, of: int = 0, ordinal: int = 0) -> str:
        """A token of an operator; another ordinal, another token of the same account."""
        return self.sim.token_of(self.sim.world.operators()[of], ordinal)

    def login(self, of: int = 0) -> str:
        return self.sim.world.operators()[of]

    async def members(self, pool: str = POOL) -> dict[str, CredentialStatus]:
        """Whom the gate knows in a pool."""
        return {one.name: one for one in (await self.gate.status(pool)).credentials}

    async def good_members(self, pool: str = POOL) -> list[str]:
        """Those that the gate may use."""
        return sorted(name for name, one in (await self.members(pool)).items() if not one.retired)

    async def rows(self, sql: str) -> Sequence[Any]:
        def ask(tx: Transaction) -> Sequence[Any]:
            return tx.execute(text(sql)).all()

        return await self.database.read(ask)


@asynccontextmanager
async def opened(
    folder: Path, valkey: Valkey, database: Database, *, limits: LimitSettings | None = None, **more: Any
) -> AsyncGenerator[CredentialHarness]:
    """An office whose GitHub has three operators and two small users."""
    config = SimulatorConfig(
        world=WorldShape(users=2, operators=3, repositories=1, quirks=False), limits=limits or LimitSettings()
    )
    async with GithubSimulator(config) as sim, UpstreamClient() as client:
        settings = Settings(data_dir=folder, github=GithubSettings(api_url=sim.url), **more)
        harness = CredentialHarness(settings, build_context(settings, valkey, database), sim, client)
        try:
            yield harness
        finally:
            await harness.book.close()


@cache
def app_key(number: int = 0) -> tuple[str, str]:
    """The private and the public half of an app's key; another number, another key. Made once for all tests."""
    del number
    key = rsa.generate_private_key(public_exponent=65_537, key_size=2_048)
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    public = key.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    return private.decode(), public.decode()
