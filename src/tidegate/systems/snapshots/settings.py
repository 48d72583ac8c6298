"""How snapshots are kept fresh."""

import re
from datetime import timedelta
from typing import Annotated, Literal, Self

from annotated_types import Ge, Gt, Le
from pydantic import BaseModel, Field, SecretStr, field_validator, model_validator

from tidegate.core.errors import InvalidArgument
from tidegate.engine.upstream import Request
from tidegate.systems.snapshots.archive.settings import ArchiveSettings
from tidegate.systems.snapshots.prefetch.settings import PrefetchSettings
from tidegate.systems.snapshots.transport.kafka import KafkaSettings

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


class LaneSettings(BaseModel, frozen=True, extra="forbid", use_attribute_docstrings=True):
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


class LowLaneSettings(LaneSettings, frozen=True, extra="forbid", use_attribute_docstrings=True):
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
    high: LaneSettings = LaneSettings()
    """How refreshes are made that somebody waits for."""
    low: LowLaneSettings = LowLaneSettings()
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
