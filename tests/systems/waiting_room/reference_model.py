"""A waiting room in plain Python: what the real one is compared with."""

from dataclasses import dataclass, field

from tidegate.systems.waiting_room import drawn_place, number_of

SESSION_MS, LONGEST_MS, ABANDON_MS, SETTLE_MS = 30_000, 70_000, 40_000, 10_000
RATE, BURST = 4, 4


@dataclass
class Waiter:
    place: int
    seen_s: int

    def is_gone(self, now_ms: int) -> bool:
        return (self.seen_s + 1) * 1000 + ABANDON_MS <= now_ms


@dataclass
class Entrant:
    waiter: Waiter | None
    until_ms: int
    number: int
    """Of the admission, counted by the model."""
    is_guest: bool = False


@dataclass
class Guest:
    expires_ms: int
    ends_ms: int
    number: int
    is_guest: bool
    told_ms: int
    """When the server believes that it expires."""


@dataclass
class RoomModel:
    """Dicts, and one function for each thing that can happen."""

    seed: str
    opens_ms: int
    capacity: int
    now_ms: int
    arrivals: int = 0
    waiting: dict[str, Waiter] = field(default_factory=dict[str, Waiter])
    entering: dict[str, Entrant] = field(default_factory=dict[str, Entrant])
    inside: dict[str, Guest] = field(default_factory=dict[str, Guest])
    tokens: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    """User and state of each admission that has a row, in their order."""
    rows: dict[int, int] = field(default_factory=dict[int, int])
    """Admission -> its row."""
    numbers: int = 0
    permits: float = BURST
    permits_at_ms: int = 0
    used: set[int] = field(default_factory=set[int])
    lots: dict[str, int] = field(default_factory=dict[str, int])
    """Places of those who left before the start."""

    @property
    def second(self) -> int:
        return self.now_ms // 1000

    def line(self) -> list[str]:
        return sorted(self.waiting, key=lambda user: self.waiting[user].place)

    def counted(self) -> int:
        return sum(not each.is_guest for each in [*self.entering.values(), *self.inside.values()])

    def join(self, user: str, place: int | None = None) -> None:
        self.see(user)
        if user in self.inside or user in self.entering or user in self.waiting:
            return
        kept = self.lots.pop(user, None) if self.now_ms < self.opens_ms else None
        place = kept if place is None else place
        if place is None:
            self.arrivals += 1
            place = drawn_place(self.seed, self.arrivals) if self.now_ms < self.opens_ms else self.arrivals
        self.arrivals = max(self.arrivals, number_of(place))
        self.waiting[user] = Waiter(place, self.second)

    def see(self, user: str) -> None:
        """A sign of life, in line or while an admission is in progress."""
        entrant = self.entering.get(user)
        if waiter := self.waiting.get(user) or (entrant and entrant.waiter):
            waiter.seen_s = self.second

    def settle(self, written_at: dict[int, int]) -> None:
        """Complete the admissions in progress that have rows, revert the others."""
        for user, entrant in sorted(self.entering.items(), key=lambda each: each[1].number):
            if entrant.number in self.rows:
                self.tell([user], since_ms=written_at[entrant.number])
            else:
                self._row(entrant.number, user, "rolled_back")
                self.roll_back([user])

    def take(self) -> list[str]:
        """The first step of an admission; the caller has settled what was in progress."""
        if self.now_ms < self.opens_ms:
            return []
        self._refill()
        wanted = min(self.capacity - self.counted(), int(self.permits + 1e-6))
        taken: list[str] = []
        while len(taken) < wanted and self.waiting:
            user = self.line()[0]
            waiter = self.waiting.pop(user)
            if not waiter.is_gone(self.now_ms):
                self._enter(user, waiter, is_guest=False)
                self.permits -= 1
                taken.append(user)
        return taken

    def invite(self, user: str) -> list[str]:
        if user in self.entering or user in self.inside:
            return []
        self._enter(user, self.waiting.pop(user, None), is_guest=True)
        return [user]

    def _enter(self, user: str, waiter: Waiter | None, *, is_guest: bool) -> None:
        self.numbers += 1
        self.entering[user] = Entrant(waiter, self.now_ms + SETTLE_MS, self.numbers, is_guest)

    def write(self, users: list[str]) -> None:
        """The second step: rows."""
        for user in users:
            self._row(self.entering[user].number, user, "active")

    def _row(self, number: int, user: str, state: str) -> None:
        self.rows[number] = len(self.tokens)
        self.tokens.append((user, state))

    def tell(self, users: list[str], *, since_ms: int | None = None) -> None:
        """The third step."""
        at_ms = self.now_ms if since_ms is None else since_ms
        for user in users:
            entrant = self.entering.pop(user)
            expires_ms = at_ms + SESSION_MS
            self.inside[user] = Guest(expires_ms, at_ms + LONGEST_MS, entrant.number, entrant.is_guest, expires_ms)
            if entrant.waiter:
                self.used.add(entrant.waiter.place)

    def roll_back(self, users: list[str]) -> None:
        for user in users:
            entrant = self.entering.pop(user)
            if entrant.waiter:
                self.waiting[user] = entrant.waiter

    def end(self, user: str, state: str) -> None:
        number = self.inside.pop(user).number
        self.tokens[self.rows[number]] = (user, state)

    def leave(self, user: str) -> None:
        waiter = self.waiting.pop(user, None)
        if waiter and self.now_ms < self.opens_ms:
            self.lots[user] = waiter.place
        if user in self.inside:
            self.end(user, "left")
        elif entrant := self.entering.pop(user, None):
            if entrant.waiter:
                self.used.add(entrant.waiter.place)
            if entrant.number in self.rows:
                self.tokens[self.rows[entrant.number]] = (user, "left")
            else:
                self._row(entrant.number, user, "left")

    def renew(self, user: str) -> None:
        session = self.inside[user]
        if session.expires_ms - self.now_ms < SESSION_MS / 2:
            session.expires_ms = min(self.now_ms + SESSION_MS, session.ends_ms)

    def expire(self) -> None:
        """Those of whom the server believes it; but SQL decides."""
        for user in [user for user, session in self.inside.items() if session.told_ms <= self.now_ms]:
            self.inside[user].told_ms = self.inside[user].expires_ms
            if self.inside[user].expires_ms <= self.now_ms:
                self.end(user, "expired")

    def remove_expired(self) -> None:
        for user in [user for user, waiter in self.waiting.items() if waiter.is_gone(self.now_ms)]:
            del self.waiting[user]

    def _refill(self) -> None:
        elapsed_ms = self.now_ms - self.permits_at_ms
        self.permits = min(BURST, self.permits + elapsed_ms * RATE / 1000)
        self.permits_at_ms = self.now_ms
