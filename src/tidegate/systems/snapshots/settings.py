"""How snapshots are kept fresh.

How Kafka is reached, and how our topics are made there.

What an operator may choose about the history of snapshots.

What an operator may choose about the calls that nobody waits for.
"""

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


class KafkaSettings(BaseModel, frozen=True, extra="forbid", use_attribute_docstrings=True):
    """How Kafka is reached, where `transport` is `kafka`."""

    servers: str = Field(default="127.0.0.1:9092", min_length=1)
    """Some brokers of the cluster, `host:port`, with commas between them; the others are found through these."""
    security: Security = "PLAINTEXT"
    """How the connection is protected."""
    mechanism: Mechanism = "SCRAM-SHA-512"
    """How we prove who we are, with one of the SASL kinds of `security`."""
    user: str | None = None
    """Our name, with SASL."""
    password: SecretStr | None = Field(default=None, repr=False)
    """Our password, with SASL."""
    ca_file: Path | None = None
    """The certificates that the brokers' must be signed by, with SSL; unset: those that the system trusts."""
    replication: int = Field(default=3, ge=1, le=9)
    """On how many brokers a message lies. 1 where there is one broker: then its disk is the only copy."""
    prefix: str = Field(default="", pattern=r"^[A-Za-z0-9._-]*$", max_length=100)
    """Stands before the names of our topics and groups, where several installations share a cluster."""
    session: Annotated[timedelta, Ge(timedelta(seconds=1)), Le(timedelta(minutes=5))] = timedelta(seconds=10)
    """A process that gave no sign of life for so long is dead: what it held goes to others."""
    answer_within: Annotated[timedelta, Ge(timedelta(seconds=1)), Le(timedelta(minutes=5))] = timedelta(seconds=10)
    """A cluster that takes longer to do what we ask counts as away."""

    @property
    def address(self) -> str:
        """The cluster as it is named in errors and in the log."""
        return f"Kafka at {self.servers}"

    @model_validator(mode="after")
    def _sasl_needs_a_name(self) -> Self:
        if self.security.startswith("SASL") and (self.user is None or self.password is None):
            raise ValueError(f"{self.security} needs user and password")
        return self


Age = Annotated[timedelta, Ge(timedelta(days=1)), Le(timedelta(days=36_500))]
_DAY = timedelta(days=1)
SCHEMES = ("file", "s3", "gs", "az")


class ArchiveSettings(BaseModel, frozen=True, extra="forbid", use_attribute_docstrings=True, validate_default=True):
    """What is remembered of snapshots, and where the old of it goes."""

    keep_history: bool = False
    """Whether it is remembered what a snapshot was before it changed. Each change then takes about as much room as a
    snapshot, in the database for as long as `after` says, and then in the archive until `delete_after`: for 18 million
    subjects of 17 KB that change once a day, some 70 GB a day."""
    enabled: bool = True
    """Whether old history is moved out of the database every night. Needs the extra `archive`."""
    url: str | None = None
    """Where to: `s3://bucket/prefix` or `file:///a/folder`; unset: the folder `archive` in the data folder. Who may
    write there is told by the environment, as everywhere (`AWS_ACCESS_KEY_ID`, `AWS_ENDPOINT_URL`, …)."""
    after: Age = timedelta(days=30)
    """How old history is when it is moved."""
    cold_after: Age = timedelta(days=180)
    """How old history is when its files become cold: they get `cold_class` on S3, and move to `cold_url` from a
    folder."""
    cold_class: Literal["GLACIER_IR", "GLACIER", "DEEP_ARCHIVE", "none"] = "GLACIER_IR"
    """The storage class of cold files on S3. Files in `GLACIER` and `DEEP_ARCHIVE` have to be restored before `history`
    can read them. `none`: files never become cold, in a folder neither."""
    cold_url: str | None = None
    """The folder for cold files of an archive in a folder: `file:///a/folder`; unset: beside it, with `-cold` in its
    name."""
    delete_after: Age | None = None
    """How old history is when it is deleted for good; unset: never."""
    at: str = Field(default="03:30", pattern=r"^([01]\d|2[0-3]):[0-5]\d$")
    """At what time of day."""
    timezone: str = "UTC"
    """By whose clocks, like Asia/Seoul."""

    @property
    def time_of_day(self) -> time:
        """When it begins."""
        return time.fromisoformat(self.at)

    @field_validator("timezone")
    @classmethod
    def _is_known(cls, value: str) -> str:
        try:
            ZoneInfo(value)
        except (KeyError, ValueError, OSError):
            raise ValueError("is no time zone that this machine knows; they are named like Europe/Berlin") from None
        return value

    @field_validator("url", "cold_url")
    @classmethod
    def _is_a_place_without_secrets(cls, value: str | None) -> str | None:
        if value is None:
            return None
        try:
            parts = urlsplit(value)
        except ValueError:
            raise ValueError("is no URL") from None
        if parts.scheme not in SCHEMES or not (parts.netloc or parts.path):
            raise ValueError("must be like s3://bucket/prefix or file:///a/folder")
        if "@" in parts.netloc or parts.query or parts.fragment:
            raise ValueError("must name a place and nothing else; credentials belong into the environment")
        return value

    @property
    def cold_age(self) -> timedelta | None:
        """How old history is when its files become cold: a day after they were written, or later. None: never."""
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


class PrefetchSettings(BaseModel, frozen=True, extra="forbid", use_attribute_docstrings=True, validate_default=True):
    """Which subjects are asked for by the clock, and how often."""

    enabled: bool = True
    """Whether subjects are asked for by the clock at all."""
    policy: Literal["tiers", "learned"] = "tiers"
    """By when a subject was last read (`tiers`), or by how often it was found changed (`learned`)."""
    daily_budget: int = Field(default=18_000_000, ge=0, le=10**12)
    """The most calls in a day, which begins at midnight in the time zone; spread over the day as the rates are."""
    timezone: str = "UTC"
    """By whose clocks, like Asia/Seoul."""
    rate: Rate = 250.0
    """The most calls in a second."""
    evening_rate: Rate = 150.0
    """The same in the evening, when readers need the upstream's limit themselves."""
    evening_begins: HourOfDay = 19
    """The hour at which the evening begins."""
    evening_ends: HourOfDay = 23
    """The hour at which it is over."""
    hot_every: Interval = timedelta(hours=1)
    """How often a HOT subject is asked for."""
    warm_every: Interval = timedelta(hours=6)
    """How often a WARM one is."""
    cold_every: Interval = timedelta(hours=24)
    """How often all others are."""
    hot_within: Interval = timedelta(days=1)
    """HOT: read within this time."""
    warm_within: Interval = timedelta(days=7)
    """WARM: read within this time."""
    hot_share: Share = 0.5
    """The share of the calls that HOT subjects get at least, if as many are due. What a tier does not need goes to HOT,
    then WARM, then COLD."""
    warm_share: Share = 0.3
    """The same for WARM ones."""
    cold_share: Share = 0.2
    """The same for all others, so that they do not wait forever."""
    shortest: Interval = timedelta(minutes=10)
    """`learned`: no subject is asked for more often."""
    longest: Interval = timedelta(days=1)
    """`learned`: none is asked for less often, so that a change of its habits is noticed."""
    hours_kept: Annotated[timedelta, Ge(timedelta(days=1)), Le(timedelta(days=36_500))] = timedelta(days=400)
    """How long the number of calls in each hour is kept."""

    @field_validator("timezone")
    @classmethod
    def _is_known(cls, value: str) -> str:
        try:
            ZoneInfo(value)
        except (KeyError, ValueError, OSError):
            raise ValueError("is no time zone that this machine knows; they are named like Europe/Berlin") from None
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


class GameSettings(BaseModel, frozen=True, extra="forbid", use_attribute_docstrings=True):
    """The upstream of the built-in kind `character`: a game's open API, or `tidegate simulate game`."""

    url: str | None = None
    """Where it is, such as `http://127.0.0.1:9200`; unset: this installation keeps no characters."""
    api_key: SecretStr | None = Field(default=None, repr=False)
    """What is sent as `X-Api-Key`."""
    ttl: Span = timedelta(minutes=15)
    """For how long a character counts as fresh after it was checked."""

    @field_validator("url")
    @classmethod
    def _is_an_address(cls, value: str | None) -> str | None:
        try:
            if value is not None:
                Request(url=value, purpose="game.character")
        except InvalidArgument as error:
            raise ValueError(error.reason) from None
        return None if value is None else value.rstrip("/")


class WorkerSettings(BaseModel, frozen=True, extra="forbid", use_attribute_docstrings=True):
    """How one process works on the events of one priority."""

    concurrency: int = Field(default=8, ge=1, le=64)
    """How many batches a process has in hand at once: so many times `batch` calls can be under way."""
    batch: int = Field(default=20, ge=1, le=500)
    """How many subjects are written at once, at most."""
    gather: Moment = timedelta(milliseconds=10)
    """How long the first result waits for others to be written with it."""

    @property
    def most_in_hand(self) -> int:
        """Events that a process holds at once."""
        return self.concurrency * self.batch


class LowWorkerSettings(WorkerSettings, frozen=True, extra="forbid", use_attribute_docstrings=True):
    """The same for events that nobody waits for: fewer batches, and larger ones."""

    concurrency: int = Field(default=2, ge=1, le=64)
    """How many batches a process has in hand at once: so many times `batch` calls can be under way."""
    batch: int = Field(default=100, ge=1, le=500)
    """How many subjects are written at once, at most."""
    gather: Moment = timedelta(milliseconds=150)
    """How long the first result waits for others to be written with it."""


class SnapshotSettings(BaseModel, frozen=True, extra="forbid", use_attribute_docstrings=True):
    """How snapshots are kept fresh."""

    transport: Literal["streams", "kafka"] = "streams"
    """How events travel to the workers: on the server that is there anyway, or on Kafka (needs the extra `kafka`)."""
    previous_transport: Literal["streams", "kafka"] | None = None
    """While events move from one transport to another: the one that was used before. Its events are still worked on,
    and new ones go to `transport`. Unset it when the log says `snapshots.transport_drained`."""
    kafka: KafkaSettings = KafkaSettings()
    """How Kafka is reached, where one of these is `kafka`."""
    archive: ArchiveSettings = ArchiveSettings()
    """What is remembered of snapshots, and where the old of it goes."""
    prefetch: PrefetchSettings = PrefetchSettings()
    """Which subjects are asked for by the clock, and how often."""
    game: GameSettings = GameSettings()
    """The upstream of the built-in kind `character`."""
    kinds: tuple[str, ...] = ()
    """Kinds of your own, each as `module:name`: a `SnapshotKind`, or a class or function that makes one without
    arguments. The module is installed, or lies in a folder of PYTHONPATH."""
    high: WorkerSettings = WorkerSettings()
    """How refreshes are made that somebody waits for."""
    low: LowWorkerSettings = LowWorkerSettings()
    """How refreshes are made that nobody waits for."""
    tries: int = Field(default=3, ge=1, le=20)
    """How often a call is made whose upstream fails, until the event is a dead letter."""
    first_pause: Brief = timedelta(seconds=1)
    """The longest pause after the first of these failures; it doubles with each."""
    most_deliveries: int = Field(default=25, ge=2, le=10**6)
    """An event that was with so many workers, none of which came to an end with it, becomes a dead letter."""
    write_within: Brief = timedelta(seconds=5)
    """A database that takes longer for one batch counts as away: nothing more is read until it is back."""
    missing_for: Span = timedelta(hours=1)
    """How long it is remembered that the upstream has no such subject, before it is asked again."""
    failed_for: Span = timedelta(minutes=1)
    """How long readers leave a subject alone whose refresh failed for good. `refresh` and `replay` do not wait."""
    local_cache_bytes: int = Field(default=64 * 1024 * 1024, ge=0, le=2**40)
    """How much of this process's memory holds snapshots that were read before."""
    local_cache_for: Brief = timedelta(seconds=10)
    """How long they are held at most. They go when they are told to have changed; this is for news that is lost."""
    cache_for: Span = timedelta(hours=1)
    """How long the server holds a copy of a snapshot after it was refreshed, or read from SQL."""
    longest_wait: Brief = timedelta(seconds=25)
    """How long `?wait=` may wait."""

    @property
    def uses_kafka(self) -> bool:
        """Whether Kafka is needed."""
        return "kafka" in (self.transport, self.previous_transport)

    @model_validator(mode="after")
    def _moves_somewhere(self) -> Self:
        if self.previous_transport == self.transport:
            raise ValueError("previous_transport must not be the same as transport")
        return self

    @field_validator("kinds")
    @classmethod
    def _are_places(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for place in value:
            if not _PLACE.fullmatch(place):
                raise ValueError(f"{place[:80]!r} must be written as module:name, such as weather.kinds:WeatherStation")
        return value
