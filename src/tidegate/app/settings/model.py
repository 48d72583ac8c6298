"""The settings themselves. Those of a part stand beside their owner; here they are put together."""

import os
from datetime import timedelta
from pathlib import Path
from typing import Self

from platformdirs import user_data_path
from pydantic import Field, SecretStr, ValidationError, field_validator
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from tidegate.app.settings.http import HttpSettings
from tidegate.app.settings.retention import RetentionSettings
from tidegate.app.settings.sources import PREFIX, Sources
from tidegate.core.arguments import require_name
from tidegate.core.errors import InvalidArgument, InvalidSettings
from tidegate.core.telemetry.logs import LogSettings
from tidegate.core.telemetry.traces import TraceSettings
from tidegate.engine.settings import CollectSettings
from tidegate.engine.sqs.settings import AwsSettings
from tidegate.engine.upstream.settings import UpstreamSettings
from tidegate.primitives.circuit_breaker.settings import BreakerSettings
from tidegate.primitives.coalescer.settings import CoalescerSettings
from tidegate.primitives.gate.settings import CredentialLimits
from tidegate.primitives.limiter.settings import LimiterSettings
from tidegate.primitives.membership.settings import PresenceSettings
from tidegate.primitives.stream.settings import StreamSettings
from tidegate.primitives.timers.settings import TimerSettings
from tidegate.storage.documents.settings import DocumentSettings
from tidegate.storage.sql.urls import parse_address
from tidegate.storage.valkey.urls import require_url
from tidegate.systems.campaigns.settings import CampaignSettings
from tidegate.systems.crawl.settings import CrawlSettings
from tidegate.systems.github.settings import GithubSettings
from tidegate.systems.ranking.settings import RankingSettings
from tidegate.systems.snapshots.settings import SnapshotSettings
from tidegate.systems.waiting_room.settings import WaitingRoomSettings

# The parts themselves bear less, as their tests show; a deployment would do little else.
_SHORTEST_BEAT = timedelta(milliseconds=100)
_SHORTEST_IDLE_LIMIT = timedelta(seconds=1)


def _default_data_dir() -> Path:
    return user_data_path("tidegate", appauthor=False)


class Settings(BaseSettings):
    """How this installation runs; nothing here changes while it does.

    `Settings.load()` is the one entry that looks at the surroundings; `Settings(...)` in code looks at nothing but its
    arguments.
    """

    model_config = SettingsConfigDict(
        env_prefix=PREFIX,
        env_nested_delimiter="__",
        env_ignore_empty=True,
        extra="forbid",
        frozen=True,
        validate_default=True,
        use_attribute_docstrings=True,
    )

    data_dir: Path = Field(default_factory=_default_data_dir)
    """The folder of the embedded server and of the SQLite file; by default the platform's folder for user data."""
    valkey_url: str | None = Field(default=None, repr=False)
    """A server (`redis://`, `rediss://`, `unix://`) or a cluster (`redis+cluster://`, `rediss+cluster://`); else the
    embedded one."""
    key_prefix: str = "tidegate"
    """What every key begins with, so that several installations can share a server."""
    database_url: str | None = Field(default=None, repr=False)
    """A database: `sqlite://`, `postgresql://`, `mysql://` or `mariadb://`; else an SQLite file in the data folder."""
    auto_migrate: bool | None = None
    """Whether the schema is brought up to date at the start; else only where the database is our own SQLite file."""
    credentials_key: SecretStr | None = Field(default=None, repr=False)
    """The key that stored secrets are encrypted with: 32 bytes in base64. Several, with commas between them: the first
    one encrypts, all open. Else `credentials.key` in the data folder, which is made when it is needed."""
    documents: DocumentSettings = DocumentSettings()
    """Where collected items go."""
    upstream: UpstreamSettings = UpstreamSettings()
    """How upstreams are called."""
    github: GithubSettings = GithubSettings()
    """Which GitHub, and what of it."""
    http: HttpSettings = HttpSettings()
    """Where to listen, and whom to answer."""
    log: LogSettings = LogSettings()
    """What is logged, and in which form."""
    aws: AwsSettings = AwsSettings()
    """Which queues on AWS."""
    breaker: BreakerSettings = BreakerSettings()
    """When calls to a failing server are refused."""
    campaigns: CampaignSettings = CampaignSettings()
    """How campaigns are worked on."""
    coalescer: CoalescerSettings = CoalescerSettings()
    """How long one request for a subject stands for all."""
    collect: CollectSettings = CollectSettings()
    """How often a job is tried, and how long it waits in between."""
    crawl: CrawlSettings = CrawlSettings()
    """How pages are crawled."""
    gate: CredentialLimits = CredentialLimits()
    """What a credential may do unless it says otherwise."""
    limiter: LimiterSettings = LimiterSettings()
    """How many calls all processes together may make."""
    presence: PresenceSettings = PresenceSettings()
    """How soon a silent process counts as dead."""
    ranking: RankingSettings = RankingSettings()
    """Which boards there are, and what counts on them."""
    retention: RetentionSettings = RetentionSettings()
    """How long things are kept that would grow for ever otherwise."""
    snapshots: SnapshotSettings = SnapshotSettings()
    """Which snapshots are kept fresh, and how."""
    stream: StreamSettings = StreamSettings()
    """How a stream treats its messages."""
    timers: TimerSettings = TimerSettings()
    """How timers are promoted."""
    traces: TraceSettings = TraceSettings()
    """Where traces go, for those who want some."""
    waiting_room: WaitingRoomSettings = WaitingRoomSettings()
    """How waiting rooms are kept."""

    @classmethod
    def load(cls) -> Self:
        """Read the environment and the file, or raise `InvalidSettings` that names every mistake at once."""
        sources = Sources.read(cls, default_data_dir=_default_data_dir())
        mistakes = list(sources.strangers())
        loaded: Self | None = None
        try:
            loaded = cls(**sources.values())
        except ValidationError as error:
            mistakes += [sources.explain(details) for details in error.errors(include_url=False)]
        # Raised out here, so that it carries no trace of pydantic's error, which quotes every value.
        if mistakes or loaded is None:
            raise InvalidSettings("\n  ".join([f"{len(mistakes)} of the settings cannot be used:", *sorted(mistakes)]))
        return loaded

    @property
    def effective_database_url(self) -> str:
        """The database that is used: the one given, else the SQLite file in the data folder."""
        return self.database_url or f"sqlite:///{self.data_dir / 'tidegate.db'}"

    def make_data_dir(self) -> Path:
        """The data folder, made if need be; raise `InvalidSettings` where it cannot be used."""
        try:
            self.data_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
            usable = os.access(self.data_dir, os.R_OK | os.W_OK | os.X_OK)
            reason = "it may not be written"
        except OSError as error:
            usable, reason = False, error.strerror or str(error)
        if not usable:
            raise InvalidSettings(
                f"the data folder {self.data_dir} cannot be used: {reason}. Name another one in TIDEGATE_DATA_DIR"
            )
        return self.data_dir

    @property
    def migrates_at_start(self) -> bool:
        """Whether the schema is brought up to date at the start, by choice or by default."""
        return self.database_url is None if self.auto_migrate is None else self.auto_migrate

    @field_validator("data_dir")
    @classmethod
    def _is_absolute(cls, value: Path) -> Path:
        return value.expanduser().absolute()

    @field_validator("key_prefix")
    @classmethod
    def _is_a_name(cls, value: str) -> str:
        try:
            return require_name("key_prefix", value)
        except InvalidArgument as error:
            raise ValueError(error.reason) from None

    @field_validator("valkey_url")
    @classmethod
    def _is_a_server(cls, value: str | None) -> str | None:
        try:
            if value is not None:
                require_url(value)
        except InvalidArgument as error:
            raise ValueError(error.reason) from None
        return value

    @field_validator("database_url")
    @classmethod
    def _is_a_database(cls, value: str | None) -> str | None:
        try:
            if value is not None:
                parse_address(value)
        except InvalidArgument as error:
            raise ValueError(error.reason) from None
        return value

    @field_validator("presence")
    @classmethod
    def _gives_servers_a_rest(cls, value: PresenceSettings) -> PresenceSettings:
        if value.renew_every < _SHORTEST_BEAT:
            raise ValueError(f"renew_every must be at least {_SHORTEST_BEAT.total_seconds()} seconds")
        return value

    @field_validator("stream")
    @classmethod
    def _gives_workers_a_chance(cls, value: StreamSettings) -> StreamSettings:
        if value.idle_limit < _SHORTEST_IDLE_LIMIT:
            raise ValueError(f"idle_limit must be at least {_SHORTEST_IDLE_LIMIT.total_seconds()} seconds")
        return value

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Arguments only; `load` reads the other sources itself, because it must know what came from where."""
        del settings_cls, env_settings, dotenv_settings, file_secret_settings
        return (init_settings,)
