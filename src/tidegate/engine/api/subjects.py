"""Logins and subjects in HTTP requests. The accepted forms are the same as on the command line."""

from typing import Annotated, Any

from msgspec import Meta

from tidegate.core.errors import InvalidArgument
from tidegate.http.dispatch import RequestInput
from tidegate.http.problems import ProblemType, RequestFailed
from tidegate.systems.github.logins import LONGEST, parse_login
from tidegate.systems.github.subjects import GithubSubject, parse_subject

_LOGIN = "[A-Za-z0-9][A-Za-z0-9-]*(_[A-Za-z0-9]+)?"
_PROFILE = "https://github.com/"


def _written(before: str) -> dict[str, object]:
    return {"pattern": f"^{before.replace('.', '[.]')}{_LOGIN}$", "maxLength": len(before) + LONGEST}


Login = Annotated[
    str,
    Meta(
        max_length=200,
        description="A login, with or without an @ before it, or the address of a profile.",
        # Documentation only. The handler checks the value, so that the error is a sentence and not a pattern.
        extra_json_schema={"anyOf": [_written(""), _written("@"), _written(_PROFILE)]},
    ),
]


_ACCOUNT = "[A-Za-z0-9][A-Za-z0-9-]{0,38}"
_SUBJECTS: list[dict[str, object]] = [
    *(_written(before) for before in ("", "@", _PROFILE)),
    {"pattern": f"^{_ACCOUNT}/[A-Za-z0-9_][A-Za-z0-9_.-]{{0,94}}$"},
    {"pattern": f"^org:{_ACCOUNT}$"},
    {"pattern": "^topic:[a-z0-9][a-z0-9-]{0,49}$"},
    {"pattern": "^search:[!-~][ -~]{0,178}$"},
]
"""The usual forms of a subject. Others are accepted too, such as the URL of a repository."""

Pattern = Annotated[str, Meta(min_length=1, max_length=200, extra_json_schema={"pattern": "^[ -~]+$"})]
SubjectText = Annotated[
    str,
    Meta(
        max_length=300,
        description="A login, with or without an @ before it; a repository (`octocat/hello-world`); an organization "
        "(`org:github`); a topic (`topic:crdt`); a search (`search:language:rust stars:>1000`); or the address of a "
        "user, an organization or a repository on github.com.",
        examples=["octocat", "octocat/hello-world", "org:github", "topic:crdt"],
        extra_json_schema={"anyOf": _SUBJECTS},
    ),
]


def read_subject(text: str, field: str = "login") -> GithubSubject:
    """Parse a subject. Raises a problem that names the field if it is invalid."""
    try:
        return parse_subject(text)
    except InvalidArgument as error:
        raise RequestFailed(ProblemType.INVALID, str(error), field=field) from None


def read_login(text: str, field: str = "login") -> str:
    """Parse a login. Raises a problem that names the field if it is invalid."""
    try:
        return parse_login(text)
    except InvalidArgument as error:
        raise RequestFailed(ProblemType.INVALID, str(error), field=field) from None


class Selected(RequestInput, frozen=True, kw_only=True):
    """Selects the repositories to collect. Other repositories of the subject are only listed."""

    repos: Annotated[tuple[Pattern, ...], Meta(max_length=100)] = ()
    """Only repositories that match one of these patterns (`docs-*`, `octocat/hello*`)."""
    exclude: Annotated[tuple[Pattern, ...], Meta(max_length=100)] = ()
    """No repositories that match one of these patterns."""
    archived: bool | None = None
    """True: only archived repositories. False: only others."""
    forks: bool | None = None
    """True: only forks. False: only others."""

    @property
    def selection(self) -> dict[str, Any]:
        """The selection of the request as options of a run."""
        patterns = {"repos": list(self.repos), "exclude": list(self.exclude)}
        switches = {"archived": self.archived, "forks": self.forks}
        return {name: given for name, given in patterns.items() if given} | {
            name: value for name, value in switches.items() if value is not None
        }
