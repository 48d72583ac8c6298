"""Settings of snapshots: workers, caches, Kafka, prefetch and the archive."""

import re
from datetime import time, timedelta
from pathlib import Path
from typing import Annotated, Literal, Self
from urllib.parse import urlsplit
from zoneinfo import ZoneInfo

from annotated_types import Ge, Gt, Le
from pydantic import BaseModel, Field, SecretStr, field_validator, model_validator

from tidegate.core.errors import InvalidArgument
from tidegate.engine.upstream import Request

Security = Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]
Mechanism = Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]


class KafkaSettings(BaseModel, frozen=True, extra="forbid"):
    """Connection to Kafka, used when `transport` is `kafka`."""

    servers: str = Field(default="127.0.0.1:9092", min_length=1)
    """Some brokers of the cluster as `host:port`, separated by commas; the others are discovered."""
    security: Security = "PLAINTEXT"
    """Encryption and authentication of the connection."""
    mechanism: Mechanism = "SCRAM-SHA-512"
    """SASL mechanism, if `security` uses SASL."""
    user: str | None = None
    """User name for SASL."""
    password: SecretStr | None = Field(default=None, repr=False)
    """Password for SASL."""
    ca_file: Path | None = None
    """Certificate authorities for SSL; unset: those of the system."""
    replication: int = Field(default=3, ge=1, le=9)
    """Replicas of each message. Use 1 only with a single broker; its disk is then the only copy."""
    prefix: str = Field(default="", pattern=r"^[A-Za-z0-9._-]*$", max_length=100)
    """Prefix of topic and group names, for installations that share a cluster."""
    session: Annotated[timedelta, Ge(timedelta(seconds=1)), Le(timedelta(minutes=5))] = timedelta(seconds=10)
    """Session timeout: after it, the messages of a process without heartbeats go to other processes."""
    answer_within: Annotated[timedelta, Ge(timedelta(seconds=1)), Le(timedelta(minutes=5))] = timedelta(seconds=10)
    """A cluster that takes longer to answer is treated as unavailable."""

    @property
    def address(self) -> str:
        """The cluster as errors and log entries name it."""
        return f"Kafka at {self.servers}"

    @model_validator(mode="after")
    def _sasl_needs_a_name(self) -> Self:
        if self.security.startswith("SASL") and (self.user is None or self.password is None):
            raise ValueError(f"{self.security} needs user and password")
        return self


Age = Annotated[timedelta, Ge(timedelta(days=1)), Le(timedelta(days=36_500))]
_DAY = timedelta(days=1)
SCHEMES = ("file", "s3", "gs", "az")


class ArchiveSettings(BaseModel, frozen=True, extra="forbid", validate_default=True):
    """History of snapshots, and its archive."""

    keep_history: bool = False
    """Whether earlier versions of snapshots are kept. Each change takes about as much space as a snapshot: in the
    database for `after`, then in the archive until `delete_after`. For 18 million subjects of 17 KB that change once a
    day, this is about 70 GB a day."""
    enabled: bool = True
    """Whether old history is moved from the database to files every night. Needs the extra `archive`."""
    url: str | None = None
    """Target: `s3://bucket/prefix` or `file:///a/folder`; unset: the folder `archive` in the data folder. Credentials
    come from the environment (`AWS_ACCESS_KEY_ID`, `AWS_ENDPOINT_URL`, …)."""
    after: Age = timedelta(days=30)
    """Age at which history is moved to the archive."""
    cold_after: Age = timedelta(days=180)
    """Age at which files become cold: on S3 they get `cold_class`, in a folder they move to `cold_url`."""
    cold_class: Literal["GLACIER_IR", "GLACIER", "DEEP_ARCHIVE", "none"] = "GLACIER_IR"
    """Storage class of cold files on S3. Files in `GLACIER` and `DEEP_ARCHIVE` must be restored before `history` can
    read them. `none`: files never become cold, also not in a folder."""
    cold_url: str | None = None
    """Folder for cold files of an archive in a folder: `file:///a/folder`; unset: the archive's name with `-cold`."""
    delete_after: Age | None = None
    """Age at which history is deleted permanently; unset: never."""
    at: str = Field(default="03:30", pattern=r"^([01]\d|2[0-3]):[0-5]\d$")
    """Time of day at which the archive runs."""
    timezone: str = "UTC"
    """Time zone of `at`, such as Asia/Seoul."""

    @property
    def time_of_day(self) -> time:
        """The value of `at`."""
        return time.fromisoformat(self.at)

    @field_validator("timezone")
    @classmethod
    def _is_known(cls, value: str) -> str:
        try:
            ZoneInfo(value)
        except (KeyError, ValueError, OSError):
            raise ValueError("is not a known time zone; use a name such as Europe/Berlin") from None
        return value

    @field_validator("url", "cold_url")
    @classmethod
    def _is_a_place_without_secrets(cls, value: str | None) -> str | None:
        if value is None:
            return None
        try:
            parts = urlsplit(value)
        except ValueError:
            raise ValueError("is not a URL") from None
        if parts.scheme not in SCHEMES or not (parts.netloc or parts.path):
            raise ValueError("must be like s3://bucket/prefix or file:///a/folder")
        if "@" in parts.netloc or parts.query or parts.fragment:
            raise ValueError(
                "must not contain credentials, a query or a fragment; credentials come from the environment"
            )
        return value

    @property
    def cold_age(self) -> timedelta | None:
        """Age at which files become cold, at least a day after they were written. None: never."""
        return None if self.cold_class == "none" else max(self.cold_after, self.after + _DAY)

    @model_validator(mode="after")
    def _ages_in_order(self) -> Self:
        if self.delete_after is not None and self.delete_after < (self.cold_age or self.after) + _DAY:
            raise ValueError("delete_after must be at least a day longer than after and cold_after")
        if self.cold_url is not None and not self.cold_url.startswith("file:"):
            raise ValueError("cold_url must be a folder: file:///a/folder")
        return self


Interval = Annotated[timedelta, Ge(timedelta(seconds=1)), Le(timedelta(days=366))]
Rate = Annotated[float, Ge(0.01), Le(100_000)]
HourOfDay = Annotated[int, Ge(0), Le(24)]
Share = Annotated[float, Ge(0.01), Le(1)]


_ROUNDING = 1e-9


class PrefetchSettings(BaseModel, frozen=True, extra="forbid", validate_default=True):
    """Scheduled refreshes: which subjects, and how often."""

    enabled: bool = True
    """Whether subjects are refreshed before a reader asks."""
    policy: Literal["tiers", "learned"] = "tiers"
    """What decides how often a subject is refreshed: its last read (`tiers`), or its change rate (`learned`)."""
    daily_budget: int = Field(default=18_000_000, ge=0, le=10**12)
    """Maximum calls per day, from midnight in `timezone`; spread over the day in proportion to the rates."""
    timezone: str = "UTC"
    """Time zone of days and hours, such as Asia/Seoul."""
    rate: Rate = 250.0
    """Maximum calls per second."""
    evening_rate: Rate = 150.0
    """Maximum calls per second in the evening, when readers need more of the upstream's limit."""
    evening_begins: HourOfDay = 19
    """Hour at which the evening begins."""
    evening_ends: HourOfDay = 23
    """Hour at which the evening ends."""
    hot_every: Interval = timedelta(hours=1)
    """Refresh period of HOT subjects."""
    warm_every: Interval = timedelta(hours=6)
    """Refresh period of WARM subjects."""
    cold_every: Interval = timedelta(hours=24)
    """Refresh period of COLD subjects: all others."""
    hot_within: Interval = timedelta(days=1)
    """A subject is HOT if it was read within this time."""
    warm_within: Interval = timedelta(days=7)
    """A subject is WARM if it was read within this time."""
    hot_share: Share = 0.5
    """Minimum share of the calls for HOT subjects, if enough are due. Calls that a tier does not need go to HOT, then
    WARM, then COLD."""
    warm_share: Share = 0.3
    """Minimum share of the calls for WARM subjects."""
    cold_share: Share = 0.2
    """Minimum share of the calls for COLD subjects, so that they do not wait forever."""
    shortest: Interval = timedelta(minutes=10)
    """`learned`: shortest time between two refreshes of a subject."""
    longest: Interval = timedelta(days=1)
    """`learned`: longest time between two refreshes, so that a changed rate is noticed."""
    hours_kept: Annotated[timedelta, Ge(timedelta(days=1)), Le(timedelta(days=36_500))] = timedelta(days=400)
    """How long the calls per hour are kept."""

    @field_validator("timezone")
    @classmethod
    def _is_known(cls, value: str) -> str:
        try:
            ZoneInfo(value)
        except (KeyError, ValueError, OSError):
            raise ValueError("is not a known time zone; use a name such as Europe/Berlin") from None
        return value

    @model_validator(mode="after")
    def _are_in_order(self) -> Self:
        if self.evening_begins > self.evening_ends:
            raise ValueError("evening_begins must not be later than evening_ends")
        if not self.hot_every <= self.warm_every <= self.cold_every:
            raise ValueError("hot_every, warm_every and cold_every must not decrease")
        if self.hot_within > self.warm_within:
            raise ValueError("hot_within must not be longer than warm_within")
        if self.hot_share + self.warm_share + self.cold_share > 1 + _ROUNDING:
            raise ValueError("hot_share, warm_share and cold_share must not be more than 1 together")
        if self.shortest > self.longest:
            raise ValueError("shortest must not be longer than longest")
        return self


_NONE = timedelta(0)
_PLACE = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")
Span = Annotated[timedelta, Gt(_NONE), Le(timedelta(days=31))]
Moment = Annotated[timedelta, Ge(_NONE), Le(timedelta(seconds=1))]
Brief = Annotated[timedelta, Gt(_NONE), Le(timedelta(minutes=5))]


class GameSettings(BaseModel, frozen=True, extra="forbid"):
    """The upstream of the built-in kind `character`: a game's open API, or `tidegate simulate game`."""

    url: str | None = None
    """Address, such as `http://127.0.0.1:9200`; unset: no snapshots of characters."""
    api_key: SecretStr | None = Field(default=None, repr=False)
    """Sent as `X-Api-Key`."""
    ttl: Span = timedelta(minutes=15)
    """How long a character is fresh after it was checked."""

    @field_validator("url")
    @classmethod
    def _is_an_address(cls, value: str | None) -> str | None:
        try:
            if value is not None:
                Request(url=value, purpose="game.character")
        except InvalidArgument as error:
            raise ValueError(error.reason) from None
        return None if value is None else value.rstrip("/")


class WorkerSettings(BaseModel, frozen=True, extra="forbid"):
    """Refresh worker of one priority in one process."""

    concurrency: int = Field(default=8, ge=1, le=64)
    """Number of batches in progress: up to `concurrency * batch` calls run at once."""
    batch: int = Field(default=20, ge=1, le=500)
    """Maximum number of subjects per transaction."""
    gather: Moment = timedelta(milliseconds=10)
    """How long the first result of a batch waits for more results."""

    @property
    def most_in_hand(self) -> int:
        """Maximum number of events in progress."""
        return self.concurrency * self.batch


class LowWorkerSettings(WorkerSettings, frozen=True, extra="forbid"):
    """Worker settings for LOW events, for which no reader waits: fewer and larger batches."""

    concurrency: int = Field(default=2, ge=1, le=64)
    """Number of batches in progress: up to `concurrency * batch` calls run at once."""
    batch: int = Field(default=100, ge=1, le=500)
    """Maximum number of subjects per transaction."""
    gather: Moment = timedelta(milliseconds=150)
    """How long the first result of a batch waits for more results."""


class SnapshotSettings(BaseModel, frozen=True, extra="forbid"):
    """How snapshots are refreshed, cached and read."""

    transport: Literal["streams", "kafka"] = "streams"
    """Transport of refresh events: Redis Streams on the Valkey server, or Kafka (needs the extra `kafka`)."""
    previous_transport: Literal["streams", "kafka"] | None = None
    """The transport used before, during a change of transport. Its events are still processed; new ones go to
    `transport`. Unset it when the log says `snapshots.transport_drained`."""
    kafka: KafkaSettings = KafkaSettings()
    """Connection to Kafka, if a transport is `kafka`."""
    archive: ArchiveSettings = ArchiveSettings()
    """History of snapshots, and its archive."""
    prefetch: PrefetchSettings = PrefetchSettings()
    """Scheduled refreshes: which subjects, and how often."""
    game: GameSettings = GameSettings()
    """The upstream of the built-in kind `character`."""
    kinds: tuple[str, ...] = ()
    """Additional kinds, each as `module:name`: a `SnapshotKind`, or a class or function that returns one without
    arguments. The module must be installed or lie in a folder of PYTHONPATH."""
    high: WorkerSettings = WorkerSettings()
    """Worker of HIGH refreshes: those that a reader may wait for."""
    low: LowWorkerSettings = LowWorkerSettings()
    """Worker of LOW refreshes: prefetch."""
    tries: int = Field(default=3, ge=1, le=20)
    """Attempts per event when the upstream fails; after the last one the event becomes a dead letter."""
    first_pause: Brief = timedelta(seconds=1)
    """Longest pause after the first failed attempt; it doubles with each attempt."""
    most_deliveries: int = Field(default=25, ge=2, le=10**6)
    """An event that was delivered more often without a result becomes a dead letter."""
    write_within: Brief = timedelta(seconds=5)
    """A database that takes longer for one batch is treated as unavailable; no events are read until it is back."""
    missing_for: Span = timedelta(hours=1)
    """How long "no such subject" is remembered before the upstream is asked again."""
    failed_for: Span = timedelta(minutes=1)
    """How long a read does not request another refresh after a permanent failure. `refresh` and `replay` always do."""
    local_cache_bytes: int = Field(default=64 * 1024 * 1024, ge=0, le=2**40)
    """Memory of this process for recently read snapshots."""
    local_cache_for: Brief = timedelta(seconds=10)
    """Longest time a snapshot stays in the memory of a process. A refresh removes it earlier; this bounds the age if
    that signal is lost."""
    cache_for: Span = timedelta(hours=1)
    """How long the Valkey server keeps a copy after a refresh or a read from SQL."""
    longest_wait: Brief = timedelta(seconds=25)
    """Maximum of `?wait=`."""

    @property
    def uses_kafka(self) -> bool:
        """Whether a transport is Kafka."""
        return "kafka" in (self.transport, self.previous_transport)

    @model_validator(mode="after")
    def _moves_somewhere(self) -> Self:
        if self.previous_transport == self.transport:
            raise ValueError("previous_transport must differ from transport")
        return self

    @field_validator("kinds")
    @classmethod
    def _are_places(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for place in value:
            if not _PLACE.fullmatch(place):
                raise ValueError(f"{place[:80]!r} must be written as module:name, such as weather.kinds:WeatherStation")
        return value
