"""Subjects of a collection: a user, a repository, an organization, or the results of a repository search.

A subject has one id, which is stored with runs, schedules and cursors:

| written as | id |
| --- | --- |
| `Octocat`, `@octocat`, `https://github.com/octocat` | `octocat` |
| `Octocat/Hello`, `repo:octocat/hello`, `https://github.com/octocat/hello` | `repo:octocat/hello` |
| `org:GitHub`, `https://github.com/orgs/github` | `org:github` |
| `topic:crdt`, `search:topic:crdt` | `topic:crdt` |
| `search:language:rust stars:>1000` | `search:language:rust stars:>1000` |
"""

import re
from collections.abc import Mapping
from enum import StrEnum
from typing import Any
from urllib.parse import urlsplit

import msgspec

from tidegate.core.errors import InvalidArgument
from tidegate.engine.source import Subject

LONGEST = 39
# New users cannot have adjacent or trailing hyphens, but older ones do. An underscore precedes the short name of an
# enterprise with managed users.
_LOGIN = re.compile(r"[a-z0-9][a-z0-9-]*(_[a-z0-9]+)?")
SITES = frozenset({"github.com", "www.github.com"})
_RULE = f"must be a GitHub login (letters, digits and hyphens, {LONGEST} at most), or a profile's address on github.com"


def require_login(text: str) -> str:
    """Return a login in lower case, since GitHub ignores case; raises `InvalidArgument` if it is invalid."""
    login = text.lower()
    if not text.isascii() or len(login) > LONGEST or not _LOGIN.fullmatch(login):
        raise InvalidArgument("login", text[: 2 * LONGEST], _RULE)
    return login


def parse_login(text: str) -> str:
    """Parse a login that a user typed: `octocat`, `@octocat`, or the URL of a profile."""
    written = text.strip()
    bare = written.removeprefix("@") if "/" not in written else _of_profile(written)
    try:
        return require_login(bare)
    except InvalidArgument:
        raise InvalidArgument("login", text[: 2 * LONGEST], _RULE) from None


def _of_profile(address: str) -> str:
    """The login in a profile's URL; empty for other URLs.

    The same name on another site may belong to another user.
    """
    link = urlsplit(address if "://" in address else f"https://{address}")
    is_profile = link.scheme in ("http", "https") and link.netloc.lower() in SITES
    # A path with further parts is refused by the check of the login.
    return link.path.strip("/") if is_profile else ""


LONGEST_QUERY = 180
_NAME = re.compile(r"[\w.-]{1,100}", re.ASCII)
_TOPIC = re.compile(r"topic:[a-z0-9][a-z0-9-]{0,49}")
RULE = (
    "must be a login (octocat), a repository (octocat/hello-world), an organization (org:github), a topic "
    "(topic:crdt), a search (search:QUERY), or an address on github.com"
)


class SubjectKind(StrEnum):
    """The type of a subject."""

    USER = "user"
    REPOSITORY = "repo"
    ORGANIZATION = "org"
    SEARCH = "search"


class GithubSubject(msgspec.Struct, frozen=True):
    """A subject of GitHub."""

    kind: SubjectKind
    name: str
    """The login, `owner/name`, the organization, or the query."""

    @property
    def id(self) -> str:
        """The id with which runs, schedules and cursors are stored."""
        if self.kind is SubjectKind.USER or (self.kind is SubjectKind.SEARCH and _TOPIC.fullmatch(self.name)):
            return self.name
        return f"{self.kind}:{self.name}"

    @property
    def account(self) -> str | None:
        """The account that owns all its repositories; None if there may be several."""
        return None if self.kind is SubjectKind.SEARCH else self.name.partition("/")[0]

    def with_options(self, options: Mapping[str, Any]) -> Subject:
        """The subject of a run with these options."""
        return Subject(user_id=self.id, login=self.id, options=options)


def parse_subject(text: str) -> GithubSubject:
    """Parse a subject that a user typed; raises `InvalidArgument`."""
    written = text.strip()
    try:
        return _parse(_of_address(written))
    except InvalidArgument as error:
        rule = error.reason if error.name in ("query", "topic") else RULE
        raise InvalidArgument("subject", text[:100], rule) from None


def require_subject(subject_id: str) -> GithubSubject:
    """Parse the id of a subject; raises `InvalidArgument` for any other notation."""
    subject = parse_subject(subject_id)
    # One id per subject: other notations would create separate cursors and documents.
    if subject.id not in (subject_id, subject_id.lower()):
        raise InvalidArgument("login", subject_id[:100], f"must be written as {subject.id}")
    return subject


def _parse(written: str) -> GithubSubject:
    prefix, has_prefix, rest = written.partition(":")
    rest = rest.strip()
    match prefix.lower() if has_prefix else "":
        case "org":
            return GithubSubject(SubjectKind.ORGANIZATION, require_login(rest))
        case "repo":
            return _repository(rest)
        case "topic":
            return GithubSubject(SubjectKind.SEARCH, _require_topic(f"topic:{rest.lower()}"))
        case "search":
            query = " ".join(rest.split())
            return GithubSubject(SubjectKind.SEARCH, _require_query(query))
        case _:
            return _repository(written) if "/" in written else GithubSubject(SubjectKind.USER, parse_login(written))


def _repository(full_name: str) -> GithubSubject:
    owner, _, name = full_name.partition("/")
    name = name.removesuffix(".git")
    if not _NAME.fullmatch(name) or name in (".", ".."):
        raise InvalidArgument("repository", full_name[:100], "must be OWNER/NAME")
    return GithubSubject(SubjectKind.REPOSITORY, f"{require_login(owner)}/{name.lower()}")


def _require_topic(query: str) -> str:
    if not _TOPIC.fullmatch(query):
        raise InvalidArgument("topic", query[:100], "a topic has lower-case letters, digits and hyphens, 50 at most")
    return query


def _require_query(query: str) -> str:
    if not query or len(query) > LONGEST_QUERY or not query.isprintable():
        raise InvalidArgument("query", query[:100], f"a search has 1 to {LONGEST_QUERY} printable characters")
    return query


def _of_address(written: str) -> str:
    """The subject of a URL on github.com; any other text unchanged."""
    if not written.lower().startswith(("http://", "https://", "github.com/", "www.github.com/")):
        return written
    link = urlsplit(written if "://" in written else f"https://{written}")
    parts = [part for part in link.path.split("/") if part]
    if link.netloc.lower() not in SITES or not 1 <= len(parts) <= 2:
        raise InvalidArgument("subject", written[:100], RULE)
    if len(parts) == 2 and parts[0] == "orgs":
        return f"org:{parts[1]}"
    return "/".join(parts)
