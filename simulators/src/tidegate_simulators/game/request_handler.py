"""Handles a call between its arrival and its answer: authentication, limits, faults, content."""

from urllib.parse import parse_qs, unquote_to_bytes

from tidegate_simulators.game.clock import WorldClock
from tidegate_simulators.game.config import Behaviour, FaultKind
from tidegate_simulators.game.documents import Documents
from tidegate_simulators.game.faults import Faults
from tidegate_simulators.game.key_limits import KeyAccounts, Refusal, Verdict
from tidegate_simulators.game.ledger import Ledger
from tidegate_simulators.game.names import name_of, subject_of
from tidegate_simulators.game.world import World
from tidegate_simulators.http_server import JSON, Reply, Request, TransportFault, error, is_known
from tidegate_simulators.stalls import LoopMonitor

_CHARACTERS = b"/v1/characters/"
_IDS = b"/v1/ids"
_LONGEST_ID = 10
_BROKEN_OFF = 10
"""Bytes that are missing at the end of an invalid body."""
_VARIED = JSON | {"Vary": "Accept-Encoding"}
_PACKED = _VARIED | {"Content-Encoding": "gzip"}
_STATUSES = {
    FaultKind.BAD_REQUEST: 400,
    FaultKind.REFUSED: 429,
    FaultKind.SERVER_ERROR: 500,
    FaultKind.BAD_GATEWAY: 502,
    FaultKind.UNAVAILABLE: 503,
    FaultKind.GATEWAY_TIMEOUT: 504,
}
"""Faults that are answers."""
_TRANSPORT_FAULTS = {FaultKind(fault.value): fault for fault in TransportFault}
_REFUSALS = {
    Refusal.SECOND: (429, "The calls of this second are used up."),
    Refusal.DAY: (429, "The calls of this day are used up."),
    Refusal.BANNED: (403, "This key went beyond its limits too often."),
}


class GameRequestHandler:
    """Decides everything when a call arrives; only the sending takes time."""

    def __init__(
        self,
        world: World,
        clock: WorldClock,
        *,
        accounts: KeyAccounts,
        faults: Faults,
        ledger: Ledger,
        behaviour: Behaviour,
        monitor: LoopMonitor,
    ) -> None:
        self._monitor = monitor
        self._world, self._clock, self.documents = world, clock, Documents(world)
        self._by_key, self._faults, self._ledger, self._behaviour = accounts.by_key, faults, ledger, behaviour

    def receive(self, request: Request) -> Reply:
        """Decide on the answer, and record the call."""
        at_us, now_ms = self._clock.read()
        route, subject = _route(request.path)
        account = self._by_key.get(request.headers.get(b"x-api-key", b""))
        if account is None:
            reply = error(401, "unauthorised", "Send a key that is known in the header X-Api-Key.")
        else:
            if subject is not None:
                self._ledger.book_subject(subject)
            verdict = account.arrive(at_us, self._monitor.delay_us())
            if verdict is not None:
                reply = _refused(verdict)
            elif subject is not None and request.method == b"GET" and self._faults.are_none:
                reply = self._character(request, subject, now_ms)
            else:
                reply = self._answer(request, route, subject, now_ms)
        self._ledger.book(route, reply.outcome, at_us)
        if self._behaviour.latency_ms:
            reply.delay_s = self._latency_s()
        return reply

    def _answer(self, request: Request, route: str, subject: int | None, now_ms: int) -> Reply:
        """The answer to a call that is admitted, spoilt if it is its turn."""
        fault = self._faults.choose(subject)
        if fault is not None:
            self._ledger.faults[fault.value] += 1
            if fault in _STATUSES:
                return self._failed(_STATUSES[fault])
        if fault is FaultKind.WRONG and subject is not None:
            subject = self._world.neighbour_of(subject)
        reply = self._honest_answer(request, route, subject, now_ms)
        if fault is FaultKind.INVALID:
            return self._invalid(reply, subject, now_ms)
        reply.fault = None if fault is None else _TRANSPORT_FAULTS.get(fault)
        return reply

    def _invalid(self, reply: Reply, subject: int | None, now_ms: int) -> Reply:
        """The same, but its text breaks off; nothing about its length or encoding tells."""
        state = None if subject is None else self._world.state(subject, now_ms)
        body = reply.body if state is None else b"".join(self.documents.plain(state, now_ms)[0])
        return Reply(reply.status, body[:-_BROKEN_OFF])

    def _honest_answer(self, request: Request, route: str, subject: int | None, now_ms: int) -> Reply:
        if request.method not in (b"GET", b"HEAD"):
            return error(405, "method", "This can only be read.", Allow="GET, HEAD")
        if subject is not None:
            return self._character(request, subject, now_ms)
        if route == "ids":
            return self._id(request.query)
        return error(404, "unknown", "There is /v1/characters/{id} and /v1/ids?name={name}.")

    def _failed(self, status: int) -> Reply:
        headers = {"Retry_After": str(self._behaviour.retry_after_s)} if status == 429 else {}
        return error(status, "fault", "This went wrong on purpose.", **headers)

    def _character(self, request: Request, subject: int, now_ms: int) -> Reply:
        state = self._world.state(subject, now_ms)
        if state is None:
            return error(404, "not_found", f"There is no character {subject}.")
        behaviour, tag = self._behaviour, dict[str, str]()
        if behaviour.etags:
            tag = {"ETag": f'W/"{subject:x}-{state.version:x}"'}
            if is_known(request.headers.get(b"if-none-match", b""), tag["ETag"].encode()):
                return Reply(304, b"", tag)
        if request.takes_gzip and behaviour.compress:
            return Reply(200, b"".join(self.documents.gzipped(state, now_ms)[0]), _PACKED | tag)
        return Reply(200, b"".join(self.documents.plain(state, now_ms)[0]), _VARIED | tag)

    def _id(self, query: bytes) -> Reply:
        name = parse_qs(query.decode("latin-1")).get("name", [""])[0]
        if not name:
            return error(400, "name", "Name the character: /v1/ids?name={name}.")
        subject = subject_of(name)
        if subject is None or not self._world.exists(subject):
            return error(404, "not_found", "No one has this name.")
        body = b'{"id":%d,"name":"%b"}' % (subject, name_of(subject).encode())
        return Reply(200, body)

    def _latency_s(self) -> float:
        jitter = self._behaviour.jitter * (2 * self._faults.chance() - 1)
        return self._behaviour.latency_ms / 1_000 * (1 + jitter)


def _route(path: bytes) -> tuple[str, int | None]:
    """The requested resource and character."""
    if b"%" in path:
        path = unquote_to_bytes(path)
    if path.startswith(_CHARACTERS):
        text = path[len(_CHARACTERS) :]
        if text.isdigit() and len(text) <= _LONGEST_ID:
            return "characters", int(text)
    return ("ids" if path == _IDS else "unknown"), None


def _refused(verdict: Verdict) -> Reply:
    status, message = _REFUSALS[verdict.refusal]
    return error(status, verdict.refusal.value, message, Retry_After=str(verdict.retry_after_s))
