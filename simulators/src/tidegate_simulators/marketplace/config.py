"""What a simulated marketplace is like: its world, its limits, its behaviour, and what counts as polite."""

from datetime import UTC, datetime
from enum import StrEnum

from tidegate_simulators.config import Frozen
from tidegate_simulators.errors import InvalidArgument
from tidegate_simulators.faults import parse_rules
from tidegate_simulators.validation import require_not_negative, require_positive, require_share, require_whole

MOST_PRODUCTS = 1 << 24
_MOST_HOSTS = 64
_MOST_IDENTITIES = 10_000


class WorldShape(Frozen, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is for sale, and how it changes from step to step. Shares are of all products, in each step."""

    seed: int = 1
    hosts: int = 1
    """Each sells its own part of the products, on a port of its own."""
    products: int = 20_000
    """On all hosts together, at the start."""
    keywords: int = 20
    per_page: int = 40
    products_per_shop: int = 20
    listed_twice: float = 0.1
    """The share of products that two keywords find."""
    appear: float = 0.01
    vanish: float = 0.01
    reprice: float = 0.02
    redescribe: float = 0.01
    restock: float = 0.02
    """Options change: their stock, their prices, their number."""
    resettle: float = 0.01
    """The share of shops with changing figures."""
    epoch: datetime = datetime(2026, 1, 1, tzinfo=UTC)
    """The calendar of the world at its first step: what Last-Modified says."""
    step_s: int = 3_600
    """How far a step moves that calendar on."""
    steps_every_s: float | None = None
    """Interval of automatic steps, by the machine's clock; None: only on request."""

    def __post_init__(self) -> None:
        require_whole("seed", self.seed, least=0, most=(1 << 63) - 1)
        require_whole("hosts", self.hosts, least=1, most=_MOST_HOSTS)
        require_whole("products", self.products, least=1, most=MOST_PRODUCTS)
        for name in ("keywords", "per_page", "products_per_shop"):
            require_whole(name, getattr(self, name), least=1, most=10_000)
        for name in ("listed_twice", "appear", "vanish", "reprice", "redescribe", "restock", "resettle"):
            require_share(name, getattr(self, name))
        require_whole("step_s", self.step_s, least=1, most=366 * 86_400)
        if self.steps_every_s is not None:
            require_positive("steps_every_s", self.steps_every_s)
        if self.epoch.tzinfo is None:
            raise InvalidArgument("epoch", self.epoch, "must name its time zone")


class LimitSettings(Frozen, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The limits of a host, per identity and for all together, and what happens when they are exceeded."""

    per_identity: int | None = 600
    """Calls of one identity to one host in any `identity_window_s`; None: as many as it likes."""
    identity_window_s: float = 60
    strikes_until_ban: int | None = 5
    """Number of calls beyond that after which the identity is banned at this host; None: no bans."""
    ban_s: float = 600
    per_host: int | None = None
    """Calls of all identities to one host in any `host_window_s`."""
    host_window_s: float = 1
    host_strikes_until_ban: int | None = None
    """Number of calls beyond that after which all identities are banned from this host."""
    host_ban_s: float = 600
    ban_is_announced: bool = True
    """Whether a 403 has a Retry-After header. Without it, another try is not a violation."""

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if name != "ban_is_announced" and value is not None:
                require_positive(name, value)


class RobotsGroup(Frozen, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What robots.txt says to one agent."""

    agent: str = "*"
    allow: tuple[str, ...] = ("/cart/help",)
    disallow: tuple[str, ...] = ("/cart/", "/account", "/*?*sort=")
    crawl_delay_s: float | None = None

    def __post_init__(self) -> None:
        if self.crawl_delay_s is not None:
            require_not_negative("crawl_delay_s", self.crawl_delay_s)
        for text in (self.agent, *self.allow, *self.disallow):
            if not text.isprintable() or not text.isascii() or not text.strip():
                raise InvalidArgument("robots", text, "must be printable ASCII")


class RobotsSettings(Frozen, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The robots.txt of a host."""

    status: int = 200
    """404: no robots.txt, so everything is allowed. 5xx: unknown, so nothing is allowed."""
    groups: tuple[RobotsGroup, ...] = (RobotsGroup(),)

    def __post_init__(self) -> None:
        if self.status not in (200, 404, 500, 503):
            raise InvalidArgument("status", self.status, "must be 200, 404, 500 or 503")


class PauseScope(StrEnum):
    """The identities for which a Retry-After is binding."""

    HOST = "host"  # all callers of this host
    IDENTITY = "identity"  # the identity that received it


class Politeness(Frozen, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the ledger holds a crawler to, beside robots.txt."""

    delay_s: float = 0
    """The crawler's own setting: so much time between two calls to one host."""
    leeway_ms: float = 0
    """A call may come so much too early, and so late after the answer that asks for a pause: it was on its way."""
    pauses_bind: PauseScope = PauseScope.HOST
    at_once_per_identity: int = 1
    robots_required: bool = True
    """Whether robots.txt must be read before anything else."""
    robots_max_age_s: float = 86_400
    """How long a crawler may use the robots.txt that it has read."""

    def __post_init__(self) -> None:
        require_not_negative("delay_s", self.delay_s)
        require_not_negative("leeway_ms", self.leeway_ms)
        require_positive("at_once_per_identity", self.at_once_per_identity)
        require_positive("robots_max_age_s", self.robots_max_age_s)


class FaultKind(StrEnum):
    """Faults on demand. The content of robots.txt is never altered, so that clients always know the rules."""

    SERVER_ERROR = "500"
    BAD_GATEWAY = "502"
    UNAVAILABLE = "503"  # with Retry-After
    GATEWAY_TIMEOUT = "504"
    REFUSED = "429"  # although no limit was broken; no strike
    TIMEOUT = "timeout"  # no answer for a long time, then none
    RESET = "reset"  # the connection breaks instead of an answer
    TRUNCATED = "truncated"  # fewer bytes than Content-Length
    SLOW = "slow"  # the body comes in drops
    INVALID = "invalid"  # 200, and a text that breaks off
    WRONG = "wrong"  # 200, and something whole that is not what was asked for
    CAPTCHA = "captcha"  # 200, and a page that asks for a human
    REDIRECT = "redirect"  # 302 to where the answer is
    LOOP = "loop"  # 302 to itself


class Route(StrEnum):
    """What can be asked for."""

    ROBOTS = "robots"
    SEARCH = "search"
    MINI_SHOP = "mini_shop"
    DETAIL = "detail"
    OPTION = "option"
    PAGE = "page"  # for people: a product, a shop, the cart
    UNKNOWN = "unknown"


class FaultRule(Frozen, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A share of the calls that fail in one way."""

    kind: FaultKind
    rate: float
    route: Route | None = None
    """Only calls of this route; None: all calls."""

    def __post_init__(self) -> None:
        require_share(f"rate of {self.kind}", self.rate)

    @property
    def place(self) -> Route | None:
        """Which calls it is about."""
        return self.route


class Behaviour(Frozen, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How the marketplace answers."""

    latency_ms: float = 0
    jitter: float = 0.5
    """The share of the latency that varies, both ways."""
    faults: tuple[FaultRule, ...] = ()
    hang_s: float = 60
    """How long a call that times out is held before the connection is closed."""
    drip_s: float = 5
    """How long a slow body takes."""
    retry_after_s: int = 1
    """What the faults 429 and 503 ask for."""
    validators: bool = True
    """Whether answers have ETag and Last-Modified, and 304 is given."""
    noise: bool = False
    """Whether every answer has something in it that no other has, so that a hash over everything tells nothing."""
    compress: bool = True
    idle_s: float = 75
    """A connection without a request for so long is closed."""

    def __post_init__(self) -> None:
        for name in ("latency_ms", "hang_s", "drip_s", "retry_after_s"):
            require_not_negative(name, getattr(self, name))
        require_share("jitter", self.jitter)
        require_positive("idle_s", self.idle_s)


class MarketplaceConfig(Frozen, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Everything about one simulator."""

    host: str = "127.0.0.1"
    port: int = 0
    """Of the first host, the others have the next ones; 0: any free ones."""
    identities: int = 20
    """How many are known from the start, each with a User-Agent, a language and a cookie that belong together."""
    only_known: bool = False
    """Whether all other identities are refused."""
    world: WorldShape = WorldShape()
    limits: LimitSettings = LimitSettings()
    robots: RobotsSettings = RobotsSettings()
    """Of every host, until one is changed."""
    politeness: Politeness = Politeness()
    behaviour: Behaviour = Behaviour()
    arrivals_kept: int = 1_000_000
    """Of so many calls to each host the arrival is kept, at eight bytes each. The figures cover all calls."""

    def __post_init__(self) -> None:
        require_whole("port", self.port, least=0, most=65_535)
        require_whole("identities", self.identities, least=0, most=_MOST_IDENTITIES)
        require_whole("arrivals_kept", self.arrivals_kept, least=0, most=100_000_000)
        if self.port:
            require_whole("port", self.port + self.world.hosts - 1, least=1, most=65_535)


def parse_faults(text: str) -> tuple[FaultRule, ...]:
    """Parse `502=0.01,captcha@search=0.05`: kind, optionally a route, and the share of calls."""

    def rule(kind: str, rate: float, route: str | None) -> FaultRule:
        return FaultRule(kind=FaultKind(kind), rate=rate, route=Route(route) if route else None)

    return parse_rules(text, rule, place=f"({'|'.join(Route)})", known=FaultKind)
