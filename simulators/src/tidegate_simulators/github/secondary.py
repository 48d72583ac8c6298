"""Secondary limits: calls at once, points per minute, computing time, too many 404s, pauses that are ignored."""

from collections import defaultdict, deque
from dataclasses import dataclass, field

from tidegate_simulators.draws import draw, fraction
from tidegate_simulators.github.answers import Answer, error
from tidegate_simulators.github.calls import Call
from tidegate_simulators.github.config import LimitSettings
from tidegate_simulators.github.ledger import Broken, Ledger

SECONDARY = "You have exceeded a secondary rate limit. Please wait a few minutes before you try again."
LOCKED_OUT = "Maximum number of login attempts exceeded. Please try again later."
LIMIT_DOCS = "https://docs.github.com/rest/overview/rate-limits-for-the-rest-api"
_LONGEST_PAUSE_S = 3_600


class Sliding:
    """A sum over the last minute: it holds in any minute, not only in those of the clock."""

    def __init__(self, length_s: float) -> None:
        self._length_s, self.total = length_s, 0.0
        self._entries: deque[tuple[float, float]] = deque()
        self._late: deque[tuple[float, float, float]] = deque()
        """Entries that were read after a stall: when, how late at most, and how much."""

    def add(self, at: float, amount: float, delay_s: float = 0) -> float:
        """Add what came at most `delay_s` ago; return the sum of the minute that ends now, by the time of reading."""
        self._entries.append((at, amount))
        self.total += amount
        if delay_s:
            self._late.append((at, delay_s, amount))
        return self.sum(at)

    def certain(self, at: float) -> tuple[float, float]:
        """What certainly came within the minute that ends now, and how late the rest may have been read."""
        begin = at - self._length_s
        while self._late and self._late[0][0] <= begin:
            self._late.popleft()
        outside = [(delay_s, amount) for read, delay_s, amount in self._late if read - delay_s <= begin]
        return self.total - sum(amount for _, amount in outside), max((delay_s for delay_s, _ in outside), default=0)

    def sum(self, at: float) -> float:
        """The sum of the minute that ends now."""
        while self._entries and self._entries[0][0] <= at - self._length_s:
            self.total -= self._entries.popleft()[1]
        if not self._entries:
            self.total = 0.0  # no residue of rounding
        return self.total


@dataclass
class Standing:
    """How one owner stands with the secondary limits."""

    minute_s: float
    at_once: int = 0
    pause_began: float = 0
    pause_ends: float = 0
    ignored: int = 0
    points: dict[str, Sliding] = field(default_factory=dict[str, Sliding])
    computing: Sliding = field(init=False)
    missed: Sliding = field(init=False)

    def __post_init__(self) -> None:
        self.computing, self.missed = Sliding(self.minute_s), Sliding(self.minute_s)

    def points_of(self, route: str) -> Sliding:
        """The points of one endpoint."""
        if route not in self.points:
            self.points[route] = Sliding(self.minute_s)
        return self.points[route]


class SecondaryLimits:
    """Admits a call or returns the broken limit, which begins a pause for its owner."""

    def __init__(self, limits: LimitSettings, ledger: Ledger) -> None:
        self._limits, self._ledger = limits, ledger
        self._standings: defaultdict[str, Standing] = defaultdict(lambda: Standing(limits.minute_s))
        self._bad_credentials: defaultdict[str, Sliding] = defaultdict(lambda: Sliding(limits.minute_s))
        self._refusals = 0

    def of(self, call: Call) -> Standing:
        """How the owner stands."""
        return self._standings[call.caller.owner.key]

    def refusal(self, call: Call) -> Answer | None:
        """None if the call is admitted."""
        standing = self.of(call)
        if call.at < standing.pause_ends:
            return self._during_pause(call, standing)
        broken = self._broken(call, standing)
        if broken is None:
            return None
        self._ledger.violated(broken, call)
        return self.stop(call)

    def _broken(self, call: Call, standing: Standing) -> Broken | None:
        limits, is_graphql = self._limits, call.match.route == "graphql"
        points = 1 if call.method == "GET" or is_graphql else 5
        most = limits.graphql_points_per_minute if is_graphql else limits.points_per_minute
        if standing.at_once > limits.at_once:
            return Broken.AT_ONCE
        if self._exceeds(Broken.POINTS, call, standing.points_of(call.match.route), points, most):
            return Broken.POINTS
        computing_s = limits.cpu_ms_per_call / 1000
        if self._exceeds(Broken.CPU, call, standing.computing, computing_s, limits.cpu_s_per_minute):
            return Broken.CPU
        return None

    def _exceeds(self, rule: Broken, call: Call, sliding: Sliding, amount: float, limit: float) -> bool:
        """Whether a call certainly exceeds a limit per minute; one that only may do so is noted as uncertain."""
        total = sliding.add(call.at, amount, call.delay_s)
        if total <= limit:
            return False
        certain, stall_s = sliding.certain(call.at)
        if certain <= limit:
            self._ledger.unsure(rule, call, read=total, certain=certain, limit=limit, stall_s=stall_s)
        return certain > limit

    def _during_pause(self, call: Call, standing: Standing) -> Answer:
        """Refuse a call; each further call during the refusal doubles the wait."""
        grace_ends = standing.pause_began + self._limits.grace_s
        if call.at > grace_ends >= call.at - call.delay_s:
            late_s = call.at - grace_ends
            self._ledger.unsure(Broken.PAUSE, call, read=late_s, certain=0, limit=0, stall_s=call.delay_s)
        elif call.at > grace_ends:
            self._ledger.violated(Broken.PAUSE, call)
            standing.ignored += 1
            return self.stop(call)
        return self._answer(standing.pause_ends - call.at)

    def stop(self, call: Call) -> Answer:
        """Begin a pause for the owner, and say so."""
        return self._answer(self._begin_pause(call))

    def _begin_pause(self, call: Call) -> float:
        standing = self.of(call)
        if call.at >= standing.pause_ends:
            standing.pause_began = call.at
            standing.ignored = 0
        pause_s = min(_LONGEST_PAUSE_S, self._limits.pause_s * 2**standing.ignored)
        standing.pause_ends = call.at + pause_s
        return pause_s

    def _answer(self, pause_s: float) -> Answer:
        self._refusals += 1
        self._ledger.refused += 1
        silent = fraction(draw(self._refusals, 91)) < self._limits.share_without_retry_after
        headers = {} if silent else {"retry-after": str(max(1, -int(-pause_s // 1)))}
        return error(self.refusal_status(), SECONDARY, docs=LIMIT_DOCS, headers=headers)

    def refusal_status(self) -> int:
        """403 or 429: both occur, for the same reasons."""
        self._refusals += 1
        return 429 if fraction(draw(self._refusals, 92)) < self._limits.share_of_429 else 403

    def computed(self, call: Call, seconds: float) -> None:
        """Computing time beyond that of an ordinary call."""
        self.of(call).computing.add(call.at, seconds)

    def missed(self, call: Call) -> None:
        """A 404 was given; too many of them begin a pause."""
        if self._exceeds(Broken.NOT_FOUND, call, self.of(call).missed, 1, self._limits.not_found_per_minute):
            self._ledger.violated(Broken.NOT_FOUND, call)
            self._begin_pause(call)

    def locked_out(self, call: Call) -> Answer | None:
        """The answer to bad credentials once there were too many of them; None as long as 401 will do."""
        tried, limit = self._bad_credentials[call.caller.owner.key], self._limits.bad_credentials_per_minute
        if not self._exceeds(Broken.CREDENTIALS, call, tried, 1, limit):
            return None
        self._ledger.violated(Broken.CREDENTIALS, call)
        return error(403, LOCKED_OUT)
