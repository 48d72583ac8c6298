"""What a simulated game API is like: its world, its limits, its behaviour. The defaults are those of a large one."""

from datetime import datetime
from enum import StrEnum

from tidegate_simulators.config import Frozen
from tidegate_simulators.errors import InvalidArgument
from tidegate_simulators.faults import parse_rules
from tidegate_simulators.validation import (
    require_at_most,
    require_not_negative,
    require_positive,
    require_share,
    require_whole,
)

MOST_SUBJECTS = 1 << 30
"""As many as there are names."""
SMALLEST_KEPT = 8_000
SMALLEST_DROPPED = 4_000
_LARGEST_BODY = 16_000_000
_SHORTEST_INTERVAL_S = 0.01
_MOST_KEYS = 1_000


def require_subject(subject: int | None) -> None:
    """An id that a character can have."""
    if subject is not None:
        require_whole("subject", subject, least=1, most=MOST_SUBJECTS)


class Tempo(Frozen, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How often some of the characters change."""

    share: float
    """How many of all characters, relative to the shares of the other tempi."""
    every_s: float | None
    """The mean time between two changes, in seconds of the world; None: they never change."""
    spread: float = 3
    """Each character has a mean of its own, from `every_s / spread` to `every_s * spread`."""

    def __post_init__(self) -> None:
        require_positive("share", self.share)
        require_at_most("spread", 1, self.spread)
        if self.every_s is not None and not self.every_s / self.spread >= _SHORTEST_INTERVAL_S:
            raise InvalidArgument(
                "every_s", self.every_s, f"must be at least {_SHORTEST_INTERVAL_S} s after the spread"
            )


DEFAULT_TEMPI = (
    Tempo(share=0.01, every_s=20 * 60),
    Tempo(share=0.09, every_s=8 * 3_600),
    Tempo(share=0.50, every_s=10 * 86_400),
    Tempo(share=0.40, every_s=None),
)
"""A few are played all day, most now and then, many never again."""


class WorldShape(Frozen, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The characters, and how fast they change."""

    seed: int = 1
    subjects: int = 18_000_000
    """Characters have the ids 1 to this; none of them takes any memory."""
    missing: float = 0.01
    """The share of these ids that do not exist: always the same ones."""
    tempi: tuple[Tempo, ...] = DEFAULT_TEMPI
    body_bytes: int = 300_000
    """The size of an answer before compression."""
    kept_bytes: int = 17_000
    """About how much of it is in the fields of `KEPT_FIELDS`."""
    epoch: datetime | None = None
    """The world's time at the start; None: the machine's."""
    speed: float = 1
    """How fast the world's time passes. The limits always count on the machine's own clock."""

    def __post_init__(self) -> None:
        require_whole("seed", self.seed, least=0, most=(1 << 63) - 1)
        require_whole("subjects", self.subjects, least=1, most=MOST_SUBJECTS)
        require_share("missing", self.missing)
        require_not_negative("speed", self.speed)
        require_whole("kept_bytes", self.kept_bytes, least=SMALLEST_KEPT, most=_LARGEST_BODY)
        require_whole("body_bytes", self.body_bytes, least=self.kept_bytes + SMALLEST_DROPPED, most=_LARGEST_BODY)
        if not self.tempi:
            raise InvalidArgument("tempi", self.tempi, "must have at least one")
        if self.epoch is not None and self.epoch.tzinfo is None:
            raise InvalidArgument("epoch", self.epoch, "must name its time zone")


class LimitSettings(Frozen, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The limits of each key, and what happens to keys that exceed them."""

    keys: int = 1
    per_second: int = 500
    per_day: int = 20_000_000
    second_s: float = 1
    """The length of a second, in which `per_second` holds."""
    day_s: float = 86_400
    """The length of a day: a shorter one lets it be seen."""
    strikes_until_ban: int | None = 100
    """Number of calls beyond a limit after which the key is banned; None: keys are never banned."""
    ban_s: float = 600

    def __post_init__(self) -> None:
        require_whole("keys", self.keys, least=1, most=_MOST_KEYS)
        for name in ("per_second", "per_day", "second_s", "day_s", "ban_s"):
            require_positive(name, getattr(self, name))
        if self.strikes_until_ban is not None:
            require_positive("strikes_until_ban", self.strikes_until_ban)


class FaultKind(StrEnum):
    """What can go wrong on demand."""

    BAD_REQUEST = "400"
    SERVER_ERROR = "500"
    BAD_GATEWAY = "502"
    UNAVAILABLE = "503"
    GATEWAY_TIMEOUT = "504"
    REFUSED = "429"  # although no limit was broken; no strike
    TIMEOUT = "timeout"  # no answer for a long time, then none
    RESET = "reset"  # the connection breaks instead of an answer
    TRUNCATED = "truncated"  # fewer bytes than Content-Length
    SLOW = "slow"  # the body comes in drops
    INVALID = "invalid"  # 200, and a body that is no JSON
    WRONG = "wrong"  # 200, and the body of another character


class FaultRule(Frozen, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A share of the calls that fail in one way."""

    kind: FaultKind
    rate: float
    subject: int | None = None
    """Only calls for this character; None: all calls."""

    def __post_init__(self) -> None:
        require_share(f"rate of {self.kind}", self.rate)
        require_subject(self.subject)

    @property
    def place(self) -> int | None:
        """Which calls it is about."""
        return self.subject


class Behaviour(Frozen, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How the simulator answers."""

    latency_ms: float = 0
    jitter: float = 0.5
    """The share of the latency that varies, both ways."""
    faults: tuple[FaultRule, ...] = ()
    hang_s: float = 60
    """How long a call that times out is held before the connection is closed."""
    drip_s: float = 5
    """How long a slow body takes."""
    retry_after_s: int = 1
    """What a refusal for no reason (the fault 429) asks for."""
    etags: bool = False
    compress: bool = True
    idle_s: float = 75
    """A connection without a request for so long is closed."""

    def __post_init__(self) -> None:
        for name in ("latency_ms", "hang_s", "drip_s", "retry_after_s"):
            require_not_negative(name, getattr(self, name))
        require_share("jitter", self.jitter)
        require_positive("idle_s", self.idle_s)


class GameConfig(Frozen, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Everything about one simulator."""

    host: str = "127.0.0.1"
    port: int = 0
    """0: any free one."""
    world: WorldShape = WorldShape()
    limits: LimitSettings = LimitSettings()
    behaviour: Behaviour = Behaviour()
    subjects_counted: int = 100_000
    """For so many different characters calls are counted one by one; those of all others are counted together."""

    def __post_init__(self) -> None:
        require_whole("port", self.port, least=0, most=65_535)
        require_whole("subjects_counted", self.subjects_counted, least=0, most=10_000_000)


def parse_faults(text: str) -> tuple[FaultRule, ...]:
    """Parse `502=0.01,reset@17=1`: kind, optionally a character's id, and the share of calls."""

    def rule(kind: str, rate: float, subject: str | None) -> FaultRule:
        return FaultRule(kind=FaultKind(kind), rate=rate, subject=int(subject) if subject else None)

    return parse_rules(text, rule, place="id", known=FaultKind)


def parse_tempi(text: str) -> tuple[Tempo, ...]:
    """Tempi from `0.1=60,0.5=3600,0.4=never`: the share of characters, and the mean seconds between two changes."""
    return tuple(_parse_tempo(part.strip()) for part in text.split(",") if part.strip())


def _parse_tempo(text: str) -> Tempo:
    share, _, every = text.partition("=")
    try:
        return Tempo(share=float(share), every_s=None if every.strip() == "never" else float(every))
    except InvalidArgument:
        raise
    except ValueError:
        raise InvalidArgument("tempi", text, "write share=seconds or share=never") from None
