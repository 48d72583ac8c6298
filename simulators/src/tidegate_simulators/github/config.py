"""What a simulated GitHub is like: its world, its limits, its behaviour. The defaults are those of the real one."""

from datetime import datetime
from enum import StrEnum

from tidegate_simulators.config import Frozen
from tidegate_simulators.faults import parse_rules
from tidegate_simulators.validation import require_at_most, require_not_negative, require_positive

MOST_REPOSITORIES = 1_000


class Sizes(Frozen, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How much there is in one repository."""

    issues: int = 0
    pulls: int = 0
    commits: int = 0
    issue_comments: int = 0
    """On issues and on pull requests alike; none where there is neither."""
    review_comments: int = 0
    """On pull requests; none where there are none. Reviews likewise."""
    reviews: int = 0

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            require_not_negative(name, getattr(self, name))


class WorldShape(Frozen, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The shape of the generated world."""

    seed: int = 1
    users: int = 25
    organizations: int = 0
    """How many of the users, from the first on, are organizations."""
    operators: int = 2
    """Accounts without repositories: owners of the tokens of a pool."""
    repositories: int | None = None
    """How many each user has; None: it varies, one to twelve."""
    sizes: Sizes | None = None
    """Of every repository; None: most are small, a few large."""
    events: int | None = None
    """How many events each user had in the last five weeks; None: it varies, none to 400."""
    extras: int = 3
    """The number of releases, tags, branches and similar items of every repository."""
    discussions: int = 0
    """How many discussions every repository has; 0: they are disabled everywhere."""
    quirks: bool = True
    """Whether some repositories are empty, private, renamed, taken down, blocked, or have no issues."""
    epoch: datetime | None = None
    """The moment at which the generated past ends; None: the full hour before the start."""

    def __post_init__(self) -> None:
        require_positive("users", self.users)
        require_not_negative("organizations", self.organizations)
        require_at_most("organizations", self.organizations, self.users)
        require_not_negative("operators", self.operators)
        require_not_negative("extras", self.extras)
        require_not_negative("discussions", self.discussions)
        require_not_negative("events", self.events or 0)
        require_not_negative("repositories", self.repositories or 0)
        require_at_most("repositories", self.repositories or 0, MOST_REPOSITORIES)


class LimitSettings(Frozen, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a token's owner may do."""

    quota: int = 5_000
    """Calls per window and owner."""
    graphql_quota: int | None = None
    """Points per window and owner; None: as many as `quota`."""
    search_quota: int = 30
    code_search_quota: int = 10
    anonymous_quota: int = 60
    window_s: float = 3_600
    """The length of an hour: a shorter one lets waiting be seen."""
    minute_s: float = 60
    """The length of a minute, for search and for the secondary limits."""
    at_once: int = 100
    points_per_minute: int = 900
    graphql_points_per_minute: int = 2_000
    cpu_s_per_minute: float = 90
    cpu_ms_per_call: float = 20
    """What a call costs of `cpu_s_per_minute`; GraphQL adds to it with its nodes."""
    not_found_per_minute: int = 60
    bad_credentials_per_minute: int = 20
    pause_s: int = 60
    """What a secondary limit asks for in `retry-after`."""
    grace_s: float = 1
    """Calls that arrive so shortly after a pause began may have been on their way: refused, but no violation."""
    share_of_429: float = 0.5
    """How many refusals are 429; the others are 403."""
    share_without_retry_after: float = 0.25
    """How many secondary refusals do not say how long to wait."""
    installation_token_s: int = 3_600

    def __post_init__(self) -> None:
        shares = {"share_of_429", "share_without_retry_after"}
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if name in shares:
                require_not_negative(name, value)
                require_at_most(name, value, 1)
            elif name == "grace_s":
                require_not_negative(name, value)
            elif value is not None:
                require_positive(name, value)


class FaultKind(StrEnum):
    """What can go wrong on demand."""

    SERVER_ERROR = "500"
    BAD_GATEWAY = "502"
    GATEWAY_TIMEOUT = "504"
    TIMEOUT = "timeout"  # no answer for a long time, then none
    RESET = "reset"  # the connection breaks instead of an answer
    TRUNCATED = "truncated"  # fewer bytes than content-length
    SLOW = "slow"  # the body comes in drops
    INVALID = "invalid"  # 200, and a body that is no JSON
    PENDING = "202"  # being computed: ask again
    SECONDARY = "secondary"  # a secondary limit, for no visible reason
    PARTIAL = "partial"  # GraphQL: data with holes, and errors
    HTML = "html"  # 200, and a page of HTML, as proxies send it
    EMPTY = "empty"  # 200, and no body
    NO_CONTENT = "204"  # no content, in place of what there is
    RESET_CONTENT = "205"  # the same, by another status
    NULL_ITEM = "null"  # one item of a list is null
    NO_ID = "no-id"  # one item of a list has no id
    WRONG_TYPE = "wrong-type"  # the id of one item of a list is of another type
    NESTED_NULL = "nested-null"  # user, author, committer, head.repo and the like are null in every item
    MIXED_UP = "mixed-up"  # the profile of another user


class FaultRule(Frozen, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A share of the calls that fail in one way."""

    kind: FaultKind
    rate: float
    route: str | None = None
    """Only calls of this route; None: of all."""

    def __post_init__(self) -> None:
        require_not_negative(f"rate of {self.kind}", self.rate)
        require_at_most(f"rate of {self.kind}", self.rate, 1)


class Behaviour(Frozen, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How the simulator answers."""

    latency_ms: float = 0
    jitter: float = 0.5
    """The share of the latency that varies, both ways."""
    faults: tuple[FaultRule, ...] = ()
    error_pause_s: float = 10
    """How long it takes until a 502 or 504 comes."""
    hang_s: float = 60
    """How long a call that times out is held before the connection is closed."""
    drip_s: float = 5
    """How long a slow body takes."""
    restless: float = 0
    """The chance that the world changes after a page of a repository was read."""
    webhook_repeats: float = 0
    """The share of deliveries of webhooks that are sent twice."""
    webhook_disorder: float = 0
    """The share of deliveries of webhooks that are sent after the one that followed."""
    largest_page_offset: int = 10_000
    """From here on, lists with cursors refuse page numbers."""
    cursors_reach_everything: bool = True
    """False: lists with cursors end there too, so that a collector must split by `since`."""
    graphql_nodes_in_time: int = 5_100
    """A query for more nodes than this takes too long: 502, and points are taken all the same."""
    incomplete_searches: float = 0.02
    events_late_s: tuple[int, int] = (30, 6 * 3_600)
    """How late an event shows up, at least and at most."""
    poll_interval_s: int = 60
    compress: bool = True

    def __post_init__(self) -> None:
        for name in ("latency_ms", "error_pause_s", "hang_s", "drip_s"):
            require_not_negative(name, getattr(self, name))
        for name in ("jitter", "restless", "incomplete_searches"):
            require_not_negative(name, getattr(self, name))
            require_at_most(name, getattr(self, name), 1)
        require_positive("graphql_nodes_in_time", self.graphql_nodes_in_time)


class SimulatorConfig(Frozen, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Everything about one simulator."""

    host: str = "127.0.0.1"
    port: int = 0
    """0: any free one."""
    world: WorldShape = WorldShape()
    limits: LimitSettings = LimitSettings()
    behaviour: Behaviour = Behaviour()

    def __post_init__(self) -> None:
        require_not_negative("port", self.port)
        require_at_most("port", self.port, 65_535)


def parse_faults(text: str) -> tuple[FaultRule, ...]:
    """Parse `502=0.01,reset@repo.issues=0.05`: kind, optionally a route, and the share of calls."""

    def rule(kind: str, rate: float, route: str | None) -> FaultRule:
        return FaultRule(kind=FaultKind(kind), rate=rate, route=route)

    return parse_rules(text, rule, place="route", known=FaultKind)
