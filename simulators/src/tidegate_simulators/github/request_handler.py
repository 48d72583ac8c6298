"""Between the arrival of a call and its answer: may it, does it fail, has anything changed, what does it cost."""

from dataclasses import dataclass
from email.utils import formatdate, parsedate_to_datetime

from tidegate_simulators.draws import draw, fraction
from tidegate_simulators.github.answers import JSON_TYPE, Answer, error, ok
from tidegate_simulators.github.api import Api
from tidegate_simulators.github.calls import Call
from tidegate_simulators.github.config import Behaviour, FaultKind
from tidegate_simulators.github.corruption import CORRUPTIONS, AnswerCorrupter
from tidegate_simulators.github.faults import Faults
from tidegate_simulators.github.graphql import without_item
from tidegate_simulators.github.ledger import Broken, Ledger
from tidegate_simulators.github.secondary import LIMIT_DOCS, SecondaryLimits
from tidegate_simulators.github.windows import Windows

VARY = "Accept, Authorization, Cookie, X-GitHub-OTP, Accept-Encoding, Accept, X-Requested-With"
NO_AGENT = (
    "Request forbidden by administrative rules. Please make sure your request has a User-Agent header "
    "(https://docs.github.com/en/rest/overview/resources-in-the-rest-api#user-agent-required). "
    "Check https://developer.github.com for other possible causes.\n"
)
INSTEAD_OF_AN_ANSWER = {
    FaultKind.SERVER_ERROR: 500,
    FaultKind.BAD_GATEWAY: 502,
    FaultKind.GATEWAY_TIMEOUT: 504,
    FaultKind.TIMEOUT: 0,
    FaultKind.RESET: 0,
}
_OF_A_BODY = (FaultKind.TRUNCATED, FaultKind.SLOW, FaultKind.INVALID)


@dataclass(slots=True)
class Reply:
    """The answer to send, with its fault."""

    answer: Answer
    headers: dict[str, str]
    fault: FaultKind | None = None
    pause_s: float = 0


class GithubRequestHandler:
    """Decides everything when a call arrives; only the sending takes time, so answers may overtake each other."""

    def __init__(
        self,
        api: Api,
        windows: Windows,
        secondary: SecondaryLimits,
        *,
        faults: Faults,
        ledger: Ledger,
        behaviour: Behaviour,
        corrupter: AnswerCorrupter,
    ) -> None:
        self._api, self._windows, self._secondary = api, windows, secondary
        self._faults, self._ledger, self._behaviour = faults, ledger, behaviour
        self._corrupter = corrupter
        self._answers = 0
        self._polled: dict[tuple[str, str], float] = {}

    def receive(self, call: Call, bad_credentials: str | None = None) -> Reply:
        """Decide on the answer, and record it."""
        self._ledger.arrived(call, self._secondary.of(call).at_once)
        if "User-Agent" not in call.headers:
            self._ledger.answered(403)
            return Reply(Answer(403, NO_AGENT.encode()), {"content-type": "text/html"})
        refusal = self._refusal(call, bad_credentials)
        if refusal is not None:
            return self._reply(call, refusal, None, refusal.cost)
        fault = self._faults.choose(call)
        answer = self._api.answer(call)
        if fault is not None and fault in INSTEAD_OF_AN_ANSWER:
            return self._broken(call, answer, fault)
        answer, fault = self._altered(call, answer, fault)
        cost = answer.cost
        if self._is_unchanged(call, answer):
            answer = Answer(304, b"", {"etag": answer.etag(call.caller.mark)})
            cost = 0 if call.caller.is_authorised else 1
        if answer.status == 404:
            self._secondary.missed(call)
        if answer.status == 502:
            return self._reply(call, answer, FaultKind.BAD_GATEWAY, cost)
        return self._reply(call, answer, fault if answer.body else None, cost)

    def _refusal(self, call: Call, bad_credentials: str | None) -> Answer | None:
        """An answer that stands before all others: bad credentials, limits."""
        if bad_credentials is not None:
            return self._secondary.locked_out(call) or error(401, bad_credentials)
        allowance = self._windows.of(call.caller, call.match.bucket)
        if call.match.route != "rate_limit" and allowance.left(call.at) <= 0:
            self._ledger.violated(Broken.PRIMARY, call)
            self._ledger.refused += 1
            return self._exhausted(call)
        refusal = self._secondary.refusal(call)
        if refusal is not None:
            refusal.cost = 0
        return refusal

    def _exhausted(self, call: Call) -> Answer:
        message = f"API rate limit exceeded for {call.caller.owner.described}."
        if call.match.bucket == "graphql":
            # Two words for the same thing are in use; the status is that of a success.
            kind = "RATE_LIMITED" if self._secondary.refusal_status() == 403 else "RATE_LIMIT"
            refused = ok({"errors": [{"type": kind, "message": message}]})
        else:
            if not call.caller.is_authorised:
                message += " (But here's the good news: Authenticated requests get a higher rate limit.)"
            refused = error(self._secondary.refusal_status(), message, docs=LIMIT_DOCS)
        refused.cost = 0
        return refused

    def _altered(self, call: Call, answer: Answer, fault: FaultKind | None) -> tuple[Answer, FaultKind | None]:
        """Faults that are answers themselves."""
        if fault is FaultKind.SECONDARY:
            self._ledger.injected(fault, call)
            stopped = self._secondary.stop(call)
            stopped.cost = 0
            return stopped, None
        if fault is FaultKind.PENDING and answer.status == 200:
            self._ledger.injected(fault, call)
            return Answer(202, b"{}"), None
        if fault is not None and fault in CORRUPTIONS and answer.status == 200:
            corrupted = self._corrupter.corrupt(call, answer, fault)
            if corrupted is not None:
                self._ledger.injected(fault, call)
                return corrupted, None
        if fault is FaultKind.PARTIAL and call.match.route == "graphql" and answer.status == 200:
            self._ledger.injected(fault, call)
            return without_item(answer), None
        return answer, fault if fault in _OF_A_BODY else None

    def _broken(self, call: Call, answer: Answer, fault: FaultKind) -> Reply:
        """No answer, but the call counts: such answers have no limit headers."""
        self._ledger.injected(fault, call)
        status = INSTEAD_OF_AN_ANSWER[fault]
        self._ledger.answered(status or fault.value)
        self._charge(call, max(1, answer.cost))
        body = b"<html><body><h1>We had issues producing the response to your request.</h1></body></html>"
        return Reply(
            Answer(status or 503, body, content_type="text/html"), {"server": "github.com"}, fault, self._delay(answer)
        )

    def _is_unchanged(self, call: Call, answer: Answer) -> bool:
        if answer.status != 200 or call.method != "GET" or call.match.route == "rate_limit":
            return False
        wanted = call.headers.get("If-None-Match")
        if wanted is not None:
            tag = answer.etag(call.caller.mark).removeprefix("W/")
            return any(one.strip().removeprefix("W/") == tag for one in wanted.split(","))
        since = call.headers.get("If-Modified-Since")
        if since is None or answer.last_modified is None:
            return False
        try:
            return parsedate_to_datetime(since).timestamp() >= answer.last_modified
        except ValueError:
            return False

    def _charge(self, call: Call, cost: int) -> dict[str, str]:
        self._ledger.spent[call.match.bucket] += cost
        return self._windows.charge(call, cost).headers(call.at)

    def _reply(self, call: Call, answer: Answer, fault: FaultKind | None, cost: int) -> Reply:
        limit_headers = self._charge(call, cost)
        self._ledger.answered(answer.status)
        if fault is not None and fault in _OF_A_BODY:
            self._ledger.injected(fault, call)
        headers = {
            "server": "github.com",
            "date": formatdate(int(call.at), usegmt=True),
            "content-type": answer.content_type,
            "cache-control": "private, max-age=60, s-maxage=60",
            "vary": VARY,
            "x-github-media-type": "github.v3; format=json",
            "x-github-request-id": f"{draw(self._answers, 121):016X}",
            **limit_headers,
            **answer.headers,
        }
        if answer.status == 200 and call.method == "GET" and answer.content_type == JSON_TYPE:
            headers["etag"] = answer.etag(call.caller.mark)
            if answer.last_modified is not None:
                headers["last-modified"] = formatdate(answer.last_modified, usegmt=True)
        self._note_polling(call, answer)
        return Reply(answer, headers, fault, self._delay(answer))

    def _note_polling(self, call: Call, answer: Answer) -> None:
        """Timelines say how long to wait before asking again for their first page."""
        if call.match.route != "user.events" or call.query.get("page", "1") != "1" or answer.status not in (200, 304):
            return
        key = call.caller.token_name, call.path
        if call.at - self._polled.get(key, float("-inf")) < self._behaviour.poll_interval_s:
            self._ledger.polled_early += 1
        self._polled[key] = call.at

    def _delay(self, answer: Answer) -> float:
        """The duration of the answer: latency and computing time."""
        self._answers += 1
        latency_s, jitter = self._behaviour.latency_ms / 1000, self._behaviour.jitter
        on_the_way = latency_s * (1 + jitter * (2 * fraction(draw(self._answers, 122)) - 1)) if latency_s else 0
        return on_the_way + answer.computing_s
