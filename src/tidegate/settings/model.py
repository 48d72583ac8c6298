"""The model of all settings, composed of the sections of all parts, and the settings of retention.

A system adds its own sections (`System.sections`). The class of a section is imported when it is needed: if one of its
settings is given, or when the system reads it. So a process with one system imports no other system.
"""

import os
from collections.abc import Iterable, Mapping
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Self, TypeVar, cast

from annotated_types import Ge, Le
from platformdirs import user_data_path
from pydantic import BaseModel, Field, SecretStr, ValidationError, create_model, field_validator, model_validator
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from tidegate.core.arguments import require_name
from tidegate.core.errors import InvalidArgument, InvalidSettings
from tidegate.core.plugins import all_sections, section_class
from tidegate.core.telemetry.logs import LogSettings
from tidegate.core.telemetry.traces import TraceSettings
from tidegate.http.settings import HttpSettings
from tidegate.primitives.limiter.settings import LimiterSettings
from tidegate.primitives.settings import (
    CircuitBreakerSettings,
    CoalescerSettings,
    CredentialLimits,
    MembershipSettings,
    StreamSettings,
    TimerSettings,
)
from tidegate.settings.sources import PREFIX, Sources
from tidegate.storage.documents.document import DocumentSettings
from tidegate.storage.sql.urls import parse_address
from tidegate.storage.valkey.urls import require_url

_Kept = Annotated[timedelta, Ge(timedelta(days=1)), Le(timedelta(days=36_500))]


class RetentionSettings(BaseModel, frozen=True, extra="forbid"):
    """How long old data is kept.

    Data in use is never deleted, regardless of its age: active runs, active admissions, open campaigns.
    """

    every: Annotated[timedelta, Ge(timedelta(minutes=1)), Le(timedelta(days=7))] = timedelta(hours=1)
    """How often the leader deletes old data; it also does so when it becomes the leader."""
    runs: _Kept = timedelta(days=90)
    """How long a run is kept after its end, with its jobs and executions. It can be retried until then."""
    cursors: _Kept = timedelta(days=365)
    """How long the cursor of a list is kept that no stored run has requested. A list without a cursor is read from the
    beginning."""
    firings: _Kept = timedelta(days=30)
    """How long fired trigger keys and due times of schedules are kept. After that, the same key can fire again."""
    handled_events: _Kept = timedelta(days=30)
    """How long records of handled events are kept; longer while the event is pending or a dead letter."""
    dead_letters: _Kept = timedelta(days=90)
    """How long dead letters of events, crawled pages and job streams can be replayed. At most `runs`, because they need
    their runs. Dead letters of a campaign are kept as long as the campaign."""
    history: _Kept = timedelta(days=30)
    """How long the points of the dashboard's charts are kept: one for each series and five minutes."""
    identity_health: _Kept = timedelta(days=90)
    """How long the health of a crawl identity at a host is kept after the last refusal."""

    @model_validator(mode="after")
    def _can_be_replayed(self) -> Self:
        if self.dead_letters > self.runs:
            raise ValueError("dead_letters must not be longer than runs: a dead letter needs its run")
        return self


S = TypeVar("S", bound=BaseModel)

# Shorter values work in tests, but a deployment would spend most of its time on them.
_SHORTEST_BEAT = timedelta(milliseconds=100)
_SHORTEST_IDLE_LIMIT = timedelta(seconds=1)


def _default_data_dir() -> Path:
    return user_data_path("tidegate", appauthor=False)


class Settings(BaseSettings):
    """All settings of an installation; immutable.

    `Settings.load()` reads the environment and the file; `Settings(...)` uses its arguments only.

    Example:
        Settings(valkey_url="redis://127.0.0.1:6379", limiter=LimiterSettings(use_by=timedelta(milliseconds=40)))
    """

    model_config = SettingsConfigDict(
        env_prefix=PREFIX,
        env_nested_delimiter="__",
        env_ignore_empty=True,
        extra="allow",  # sections of systems; other names are refused below
        frozen=True,
        validate_default=True,
    )

    if TYPE_CHECKING:

        def __init__(self, **values: Any) -> None:
            """Sections of systems are arguments with their names, in addition to the fields below."""

    systems: tuple[str, ...] | None = None
    """Names of the systems to use; by default all installed systems."""
    sources: tuple[str, ...] = ()
    """Your own sources, as `package.module:Class`, in every process. See the guide "Write a source"."""
    data_dir: Path = Field(default_factory=_default_data_dir)
    """The folder of the embedded server and of the SQLite file; by default the platform's folder for user data."""
    valkey_url: str | None = Field(default=None, repr=False)
    """URL of a server (`redis://`, `rediss://`, `unix://`) or a cluster (`redis+cluster://`, `rediss+cluster://`); by
    default the embedded server."""
    key_prefix: str = "tidegate"
    """Prefix of all keys, so that several installations can share a server."""
    database_url: str | None = Field(default=None, repr=False)
    """Database URL: `sqlite://`, `postgresql://`, `mysql://`, `mariadb://`; by default SQLite in the data folder."""
    auto_migrate: bool | None = None
    """Whether the schema is updated at the start; by default only if the database is the default SQLite file."""
    credentials_key: SecretStr | None = Field(default=None, repr=False)
    """Key for the encryption of stored secrets: 32 bytes in base64. Several keys are separated by commas: the first one
    encrypts, all decrypt. By default `credentials.key` in the data folder, which is created when it is needed."""
    documents: DocumentSettings = DocumentSettings()
    """The store of collected documents."""
    http: HttpSettings = HttpSettings()
    """The addresses to listen on, and the callers to accept."""
    log: LogSettings = LogSettings()
    """Level and format of the log."""
    breaker: CircuitBreakerSettings = CircuitBreakerSettings()
    """When calls to a failing server are refused."""
    coalescer: CoalescerSettings = CoalescerSettings()
    """How long concurrent requests for a subject are merged."""
    gate: CredentialLimits = CredentialLimits()
    """Default limits of a credential."""
    limiter: LimiterSettings = LimiterSettings()
    """Limits of calls, shared by all processes."""
    membership: MembershipSettings = MembershipSettings()
    """How soon a process without heartbeat counts as dead."""
    retention: RetentionSettings = RetentionSettings()
    """How long old rows and keys are kept."""
    stream: StreamSettings = StreamSettings()
    """Delivery of messages in streams."""
    timers: TimerSettings = TimerSettings()
    """Processing of due timers."""
    traces: TraceSettings = TraceSettings()
    """Whether and where traces are exported."""

    @classmethod
    def load(cls) -> "Settings":
        """Read the environment and the file. Raises `InvalidSettings`, which lists all errors."""
        sources = Sources.read(compose, default_data_dir=_default_data_dir())
        mistakes = list(sources.unknown_names())
        loaded: Settings | None = None
        try:
            loaded = sources.model(**sources.values())
        except ValidationError as error:
            mistakes += [sources.explain(details) for details in error.errors(include_url=False)]
        # Raised outside of the handler, so that it does not refer to pydantic's error, which contains all values.
        if mistakes or loaded is None:
            raise InvalidSettings("\n  ".join([f"{len(mistakes)} invalid setting(s):", *sorted(mistakes)]))
        return loaded

    def section(self, kind: type[S]) -> S:
        """The section of this class; with defaults if it is not given."""
        return next((each for _, each in self if isinstance(each, kind)), None) or kind()

    @property
    def effective_database_url(self) -> str:
        """The URL of the configured database, or of the SQLite file in the data folder."""
        return self.database_url or f"sqlite:///{self.data_dir / 'tidegate.db'}"

    def make_data_dir(self) -> Path:
        """Create the data folder if necessary, and return it. Raises `InvalidSettings` if it is not usable."""
        try:
            self.data_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
            usable = os.access(self.data_dir, os.R_OK | os.W_OK | os.X_OK)
            reason = "it is not writable"
        except OSError as error:
            usable, reason = False, error.strerror or str(error)
        if not usable:
            raise InvalidSettings(
                f"the data folder {self.data_dir} cannot be used: {reason}. Set another one in TIDEGATE_DATA_DIR"
            )
        return self.data_dir

    @property
    def migrates_at_start(self) -> bool:
        """Whether the schema is updated at the start, by the setting or by default."""
        return self.database_url is None if self.auto_migrate is None else self.auto_migrate

    @model_validator(mode="before")
    @classmethod
    def _read_sections(cls, values: Any) -> Any:
        """Convert values with the names of sections to sections; other unknown names are refused."""
        given = cast("dict[str, Any]", values)
        names = given.keys() - cls.model_fields.keys()
        known = {name: kind for name in names if (kind := section_class(name)) is not None}
        # One model with all sections reports all errors at once, with their names.
        sections = _sections_only(known).model_validate({name: given[name] for name in names})
        # pydantic accepts these instances as they are; they are fields only in composed models.
        return {**given, **dict(sections)}

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

    @field_validator("membership")
    @classmethod
    def _gives_servers_a_rest(cls, value: MembershipSettings) -> MembershipSettings:
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
        """Use arguments only; `load` reads the other sources itself, because it reports the origin of each value."""
        del settings_cls, env_settings, dotenv_settings, file_secret_settings
        return (init_settings,)


def compose(names: Iterable[str] | None = None) -> type[Settings]:
    """The settings class with these sections as fields; by default with all sections."""
    if names is None:
        sections = all_sections()
    else:
        sections = {name: section_class(name) for name in names if name not in Settings.model_fields}
    fields = {
        name: (kind, Field(default=kind(), description=(kind.__doc__ or "").partition("\n")[0]))
        for name, kind in sections.items()
        if kind is not None
    }
    return create_model("Settings", __base__=Settings, **cast("dict[str, Any]", fields))


def _sections_only(known: Mapping[str, type[BaseModel]]) -> type[BaseModel]:
    fields = {name: (kind, ...) for name, kind in known.items()}
    return create_model("Sections", __config__={"extra": "forbid"}, **cast("dict[str, Any]", fields))
