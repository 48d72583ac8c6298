"""Identities: a User-Agent, and the session cookie and language that belong to it."""

from hashlib import blake2b

import msgspec

from tidegate_simulators.errors import NotFound
from tidegate_simulators.marketplace.config import MarketplaceConfig
from tidegate_simulators.marketplace.pauses import Pauses
from tidegate_simulators.marketplace.rates import Rate, rate_of_identity

_MOST_CALLERS = 20_000
"""Beyond these, all strangers count as one."""
_COOKIE = b"sid"
_LANGUAGES = ("en-GB,en;q=0.9", "de-DE,de;q=0.8,en;q=0.5", "ko-KR,ko;q=0.9,en;q=0.4", "fr-FR,fr;q=0.9")
_PLATFORMS = (
    "X11; Linux x86_64",
    "Windows NT 10.0; Win64; x64",
    "Macintosh; Intel Mac OS X 14_5",
    "Android 15; Mobile",
)


class Identity(msgspec.Struct, frozen=True):
    """One that the marketplace knows from the start. All its headers go together: half of them are a giveaway."""

    name: str
    user_agent: str
    headers: dict[str, str]
    """With User-Agent."""


class Caller:
    """An identity that has called, and the results of its calls."""

    def __init__(self, name: str, rates: list[Rate], *, is_known: bool) -> None:
        self.name, self.is_known, self.rates = name, is_known, rates
        self.under_way = 0
        self.pauses = [Pauses() for _ in rates]
        """The pauses of this identity alone, by host."""
        self.clear()

    def clear(self) -> None:
        """Set all counts to zero."""
        self.calls = self.refused = self.most_at_once = 0


class Callers:
    """All identities that have called."""

    def __init__(self, config: MarketplaceConfig) -> None:
        self._limits, self._hosts = config.limits, config.world.hosts
        self.identities = [_identity(config.world.seed, number) for number in range(config.identities)]
        self.all: dict[str, Caller] = {}
        self._by_session: dict[bytes, tuple[Identity, Caller]] = {}
        for identity in self.identities:
            caller = self._add(identity.name, is_known=True)
            self._by_session[_session(identity.headers["Cookie"].encode())] = identity, caller
        self._found: dict[tuple[bytes, bytes, bytes], tuple[Caller, bool]] = {}
        self._unknown_callers: dict[tuple[bytes, bytes], Caller] = {}

    def find(self, fields: dict[bytes, bytes]) -> tuple[Caller, bool]:
        """Return the identity of these headers, and whether they belong together."""
        mark = fields.get(b"user-agent", b""), fields.get(b"cookie", b""), fields.get(b"accept-language", b"")
        found = self._found.get(mark)
        if found is None:
            found = self._recognise(*mark)
            if len(self._found) < _MOST_CALLERS:
                self._found[mark] = found
        return found

    def require(self, name: str) -> Caller:
        """Return the identity by name; `NotFound` if it has not called."""
        if name not in self.all:
            raise NotFound("identity", name)
        return self.all[name]

    def _recognise(self, agent: bytes, cookies: bytes, language: bytes) -> tuple[Caller, bool]:
        session = _session(cookies)
        if session in self._by_session:
            identity, caller = self._by_session[session]
            expected = identity.user_agent.encode(), identity.headers["Accept-Language"].encode()
            return caller, (agent, language) == expected
        unknown_caller = self._unknown_callers.get((agent, session))
        if unknown_caller is None:
            is_last = len(self._unknown_callers) >= _MOST_CALLERS
            unknown_caller = self._unknown_caller(
                "all others" if is_last else agent.decode("latin-1")[:80] or "without a name"
            )
            if not is_last:
                self._unknown_callers[agent, session] = unknown_caller
        return unknown_caller, True

    def _unknown_caller(self, name: str) -> Caller:
        if name == "all others":
            return self.all.get(name) or self._add(name, is_known=False)
        alike, number = name, 1
        while name in self.all:
            number += 1
            name = f"{alike} #{number}"
        return self._add(name, is_known=False)

    def _add(self, name: str, *, is_known: bool) -> Caller:
        rates = [rate_of_identity(self._limits) for _ in range(self._hosts)]
        self.all[name] = Caller(name, rates, is_known=is_known)
        return self.all[name]


def _identity(seed: int, number: int) -> Identity:
    session = blake2b(b"session %d %d" % (seed, number), digest_size=12).hexdigest()
    agent = f"Mozilla/5.0 ({_PLATFORMS[number % len(_PLATFORMS)]}) Harbour/{120 + number // len(_PLATFORMS)}.0"
    headers = {
        "User-Agent": agent,
        "Accept-Language": _LANGUAGES[number % len(_LANGUAGES)],
        "Cookie": f"sid={session}; theme=light",
    }
    return Identity(f"identity-{number}", agent, headers)


def _session(cookies: bytes) -> bytes:
    for cookie in cookies.split(b";"):
        name, _, value = cookie.strip().partition(b"=")
        if name == _COOKIE:
            return value
    return b""
