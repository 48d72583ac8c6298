"""Default meanings of HTTP statuses, which a kind of job can override, and the address of the next page.

The header `Link` has that address.
"""

import re
from typing import Protocol
from urllib.parse import urlsplit

import msgspec

from tidegate.core.errors import UNDECODABLE
from tidegate.engine.source import Reading, Task, Verdict
from tidegate.engine.upstream import Answer
from tidegate.engine.upstream.messages import Headers
from tidegate.engine.upstream.redirects import is_redirect
from tidegate.systems.github import kinds, limits
from tidegate.systems.github.limits import LimitKind, explain
from tidegate.systems.github.requests import GithubCall

_LINK = re.compile(r'<([^<>]*)>((?:\s*;\s*[a-zA-Z*]+\s*=\s*(?:"[^"]*"|[^",;\s]+))*)')
_RELATION = re.compile(r';\s*rel\s*=\s*(?:"([^"]*)"|([^",;\s]+))', re.IGNORECASE)


_PAGE_NUMBER = re.compile(r"[?&]page=([0-9]{1,15})(?:&|$)")


class ForeignLink(ValueError):
    """A link to another host than the API; it is not followed, because requests carry credentials."""


def links(headers: Headers) -> dict[str, str]:
    """All links by relation; of several with the same relation, the first."""
    found: dict[str, str] = {}
    for target, parameters in _LINK.findall(", ".join(headers.getall("Link", []))):
        relation = _RELATION.search(parameters)
        for name in (relation[1] or relation[2] or "").split() if relation else ():
            found.setdefault(name.lower(), target)
    return found


def next_path(headers: Headers, api_url: str) -> str | None:
    """Path and query of the next page, relative to the API's address; None on the last page."""
    target = links(headers).get("next")
    return None if target is None else below(target, api_url)


def is_forward(path: str, following: str) -> bool:
    """Whether a link to the next page leads further than the page that has it, and not back to it or an earlier one."""
    here, there = (_PAGE_NUMBER.search(each) for each in (path, following))
    if there is not None:
        return int(there[1]) > (1 if here is None else int(here[1]))
    return following != path


def below(url: str, api_url: str) -> str:
    """`url` relative to the API's address; raises `ForeignLink` if it is at another address."""
    api, link = urlsplit(api_url), urlsplit(url)
    prefix = api.path.rstrip("/")
    # Scheme and port as well: a link to another port or without TLS would expose the credential.
    if (link.scheme, link.netloc.lower()) != (api.scheme, api.netloc.lower()) or not link.path.startswith(f"{prefix}/"):
        raise ForeignLink(f"the link to the next page leads to {link.netloc or 'no host'}, which is not the API")
    path = link.path.removeprefix(prefix)
    return f"{path}?{link.query}" if link.query else path


_REFUSALS = frozenset({403, 429})
_PASSING = frozenset({408, 425})
_HIDDEN = frozenset({404, 451})
_BLOCKED = "access blocked"


class AnswerReader(Protocol):
    """Reads the answers of one kind of job."""

    def ask(self, task: Task, /) -> GithubCall:
        """Build the call of a job."""
        ...

    def read(self, task: Task, answer: Answer, following: str | None, /) -> Reading:
        """Read an answer with content; `following` is the path of the next page."""
        ...

    def unchanged(self, task: Task, answer: Answer, /) -> Reading:
        """Handle a 304: nothing changed since the ETag was received."""
        ...

    def refused(self, task: Task, answer: Answer, /) -> Reading | None:
        """Read an answer that has a special meaning for this kind; None if it has the default meaning."""
        ...


def interpret(task: Task, answer: Answer, reader: AnswerReader, api_url: str) -> Reading:
    """Interpret the answer to a job."""
    match answer.status:
        case 200 | 203:
            return _content(task, answer, reader, api_url)
        case 304:
            return msgspec.structs.replace(reader.unchanged(task, answer), unchanged=True)
        # GitHub computes some statistics in the background; the job asks again later.
        case 202:
            return Reading(verdict=Verdict.LATER, reason="202: being computed", delay_ms=limits.asked_wait_ms(answer))
        case 401:
            return Reading(verdict=Verdict.UNAUTHORIZED, reason=explain(answer))
        case status if status in _REFUSALS and (limit := limits.limit_of(answer)) is not None:
            return _limited(answer, limit)
        case _ if is_redirect(answer):
            return Reading(verdict=Verdict.MOVED, reason=explain(answer))
        case _:
            return reader.refused(task, answer) or _plain(task, answer)


def _content(task: Task, answer: Answer, reader: AnswerReader, api_url: str) -> Reading:
    try:
        following = next_path(answer.headers, api_url)
        # A page that links to itself would be read again and again, until the window is empty.
        if following is not None and not is_forward(reader.ask(task).path, following):
            return Reading(verdict=Verdict.RETRY, reason="the link to the next page leads back")
        return reader.read(task, answer, following)
    except UNDECODABLE as error:
        return Reading(verdict=Verdict.RETRY, reason=f"{answer.status} with a body that cannot be read: {error}")
    # A proxy or cache in between may have changed the link; the credential must not follow it.
    except ForeignLink as error:
        return Reading(verdict=Verdict.RETRY, reason=str(error))


def _limited(answer: Answer, limit: LimitKind) -> Reading:
    """The meaning of a limit: an empty window is reported as allowance; any other limit blocks the credential."""
    if limit is LimitKind.PRIMARY:
        return Reading(verdict=Verdict.LATER, reason=explain(answer), delay_ms=0)
    return limits.rest(answer, explain(answer))


def _plain(task: Task, answer: Answer) -> Reading:
    status = answer.status
    if _is_withheld(task, answer):
        return Reading(verdict=Verdict.UNAVAILABLE, reason=explain(answer))
    passes = status >= 500 or status < 400 or status in _PASSING
    if not passes:
        return Reading(verdict=Verdict.GONE, reason=explain(answer))
    return Reading(verdict=Verdict.RETRY, reason=explain(answer), delay_ms=limits.asked_wait_ms(answer))


def _is_withheld(task: Task, answer: Answer) -> bool:
    """Whether GitHub withholds a listed item: blocked for legal reasons or for a breach of its terms, or missing.

    A retry does not help, so it does not count as a failure. Any other 403 does: the token may lack a permission.
    """
    if not task.spec.resource.startswith(kinds.REPOSITORY_PREFIX):
        return False
    return answer.status in _HIDDEN or (answer.status == 403 and _BLOCKED in explain(answer).lower())
