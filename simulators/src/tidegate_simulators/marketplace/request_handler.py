"""Handles a call between its arrival and its answer: identity, rules, limits, faults."""

from functools import partial
from urllib.parse import unquote_to_bytes

from tidegate_simulators.faults import Faults
from tidegate_simulators.http_server import JSON, Reply, Request, TransportFault, error
from tidegate_simulators.marketplace import pages
from tidegate_simulators.marketplace.answers import HTML, Answers, Asked, asked
from tidegate_simulators.marketplace.config import FaultKind, MarketplaceConfig, PauseScope, Route
from tidegate_simulators.marketplace.identities import Caller, Callers
from tidegate_simulators.marketplace.ledger import Ledger
from tidegate_simulators.marketplace.rates import Refusal, Verdict, judge
from tidegate_simulators.marketplace.site import Site

_BROKEN_OFF = 10
"""Bytes that are missing at the end of an invalid body."""
_HOP = b"hop=1"
_STATUSES = {
    FaultKind.SERVER_ERROR: 500,
    FaultKind.BAD_GATEWAY: 502,
    FaultKind.UNAVAILABLE: 503,
    FaultKind.GATEWAY_TIMEOUT: 504,
    FaultKind.REFUSED: 429,
}
_ASK_TO_WAIT = (429, 503)
_TRANSPORT_FAULTS = {FaultKind(fault.value): fault for fault in TransportFault}
_ALTER_CONTENT = (FaultKind.INVALID, FaultKind.WRONG, FaultKind.CAPTCHA)
_OF_JSON = (Route.MINI_SHOP, Route.DETAIL, Route.OPTION)
_REFUSALS = {
    Refusal.IDENTITY_RATE: (429, "You ask too often."),
    Refusal.HOST_RATE: (429, "Too many ask at present."),
    Refusal.IDENTITY_BANNED: (403, "You asked too often."),
    Refusal.HOST_BANNED: (403, "Requests from your address are not served."),
}
_SCOPES = {Refusal.IDENTITY_RATE: PauseScope.IDENTITY, Refusal.HOST_RATE: PauseScope.HOST}


class MarketplaceRequestHandler:
    """Decides everything when a call arrives; only the sending takes time."""

    def __init__(
        self,
        config: MarketplaceConfig,
        answers: Answers,
        *,
        callers: Callers,
        faults: Faults[FaultKind, Route],
        ledger: Ledger,
    ) -> None:
        self._config, self._behaviour, self._answers = config, config.behaviour, answers
        self._callers, self._faults, self._ledger = callers, faults, ledger

    def receive(self, site: Site, request: Request, at_us: int, delay_us: int = 0) -> Reply:
        """Decide on the answer, and record the call."""
        caller, is_whole = self._callers.find(request.headers)
        agent = request.headers.get(b"user-agent", b"")
        path = unquote_to_bytes(request.path) if b"%" in request.path else request.path
        target = path + b"?" + request.query if request.query else path
        wanted = asked(path)
        site.book.arrive(caller, agent, target, site.robots, at_us, is_whole=is_whole, delay_us=delay_us)
        pause_s = self._latency_s() if self._behaviour.latency_ms else 0
        reply = self._refusal(site, caller, at_us, at_us + round(pause_s * 1e6), is_unknown=not agent)
        if reply is None:
            reply = self._admitted(site, request, wanted, caller, at_us + round(pause_s * 1e6))
        reply.delay_s, reply.on_end = pause_s, partial(site.book.end, caller)
        self._ledger.book(wanted.route, reply.outcome)
        return reply

    def _refusal(self, site: Site, caller: Caller, at_us: int, sent_us: int, *, is_unknown: bool) -> Reply | None:
        """An answer that stands before all others; it goes out at `sent_us`."""
        if is_unknown or (self._config.only_known and not caller.is_known):
            caller.refused += 1
            self._ledger.refused["unknown_identity"] += 1
            return error(403, "unknown_identity", "Identify yourself.")
        verdict = judge(site.rate, caller.rates[site.number], at_us)
        if verdict is None:
            return None
        caller.refused += 1
        self._ledger.refused[verdict.refusal] += 1
        if verdict.refusal in _SCOPES:
            site.book.announce_pause(caller, sent_us, verdict.retry_after_s, _SCOPES[verdict.refusal])
            return _refused(verdict, is_told=True)
        rate = site.rate if verdict.refusal is Refusal.HOST_BANNED else caller.rates[site.number]
        if self._config.limits.ban_is_announced and rate.told_us is None:
            rate.told_us = sent_us
        return _refused(verdict, is_told=self._config.limits.ban_is_announced)

    def _admitted(self, site: Site, request: Request, wanted: Asked, caller: Caller, sent_us: int) -> Reply:
        """The answer to a call that is admitted, spoilt if it is its turn."""
        fault = None if self._faults.are_none else self._faults.choose(wanted.route)
        if fault is FaultKind.REDIRECT and _HOP in request.query:
            fault = None  # this is where it was sent to
        if wanted.route is Route.ROBOTS and fault in _ALTER_CONTENT:
            fault = None
        if fault is not None:
            self._ledger.faults[fault] += 1
            if fault in _STATUSES:
                return self._failed(site, caller, _STATUSES[fault], sent_us)
            if fault not in _TRANSPORT_FAULTS:
                return self._altered(site, request, wanted, fault)
        reply = self._honest(site, request, wanted)
        reply.fault = None if fault is None else _TRANSPORT_FAULTS[fault]
        if wanted.route is Route.ROBOTS and reply.fault in (None, TransportFault.SLOW):
            site.book.note_robots(site.robots, sent_us)
        return reply

    def _honest(self, site: Site, request: Request, wanted: Asked) -> Reply:
        return (
            site.robots_reply() if wanted.route is Route.ROBOTS else self._answers.answer(site.number, request, wanted)
        )

    def _failed(self, site: Site, caller: Caller, status: int, sent_us: int) -> Reply:
        wait_s = self._behaviour.retry_after_s
        if status not in _ASK_TO_WAIT:
            return error(status, "fault", "This went wrong on purpose.")
        site.book.announce_pause(caller, sent_us, wait_s, PauseScope.HOST)
        return error(status, "fault", "This went wrong on purpose.", Retry_After=str(wait_s))

    def _altered(self, site: Site, request: Request, wanted: Asked, fault: FaultKind) -> Reply:
        """Faults that are answers themselves. None of them has a validator."""
        is_json = wanted.route in _OF_JSON
        if fault in (FaultKind.REDIRECT, FaultKind.LOOP):
            query = request.query if fault is FaultKind.LOOP else b"&".join(filter(None, (request.query, _HOP)))
            location = request.path + b"?" + query if query else request.path
            return Reply(302, b"", {"Location": location.decode("latin-1")})
        if fault is FaultKind.CAPTCHA:
            body, kind = pages.CAPTCHA, HTML
        elif fault is FaultKind.WRONG:
            body, kind = (b'{"code":"BUSY","data":null}', JSON) if is_json else (pages.BUSY, HTML)
        else:
            body, kind = self._answers.plain(site.number, request, wanted)[:-_BROKEN_OFF], JSON if is_json else HTML
        return Reply(200, body, kind)

    def _latency_s(self) -> float:
        jitter = self._behaviour.jitter * (2 * self._faults.chance() - 1)
        return self._behaviour.latency_ms / 1_000 * (1 + jitter)


def _refused(verdict: Verdict, *, is_told: bool) -> Reply:
    status, message = _REFUSALS[verdict.refusal]
    headers = {"Retry_After": str(verdict.retry_after_s)} if is_told else {}
    return error(status, verdict.refusal.value, message, **headers)
