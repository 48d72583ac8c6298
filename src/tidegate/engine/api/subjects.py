"""Subjects in HTTP requests. The source decides their form, as on the command line."""

from collections.abc import Mapping
from typing import Annotated, Any

from msgspec import Meta

from tidegate.core.errors import InvalidArgument
from tidegate.engine.source import Subject
from tidegate.engine.source_plugin import SourcePlugin
from tidegate.http.dispatch import RequestInput
from tidegate.http.problems import ProblemType, RequestFailed

Pattern = Annotated[str, Meta(min_length=1, max_length=200, extra_json_schema={"pattern": "^[ -~]+$"})]
SourceName = Annotated[str, Meta(min_length=1, max_length=40, extra_json_schema={"format": "source-name"})]
SubjectText = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=300,
        description="What is collected, in the form of the source. GitHub has: a login, with or without an @ before "
        "it; a repository (`octocat/hello-world`); an organization (`org:github`); a topic (`topic:crdt`); a search "
        "(`search:language:rust stars:>1000`); or the address of a user, an organization or a repository.",
        examples=["octocat", "octocat/hello-world", "org:github", "topic:crdt"],
        extra_json_schema={"format": "subject"},
    ),
]


def read_subject(
    plugin: SourcePlugin, text: str, options: Mapping[str, Any] | None = None, *, field: str = "login"
) -> Subject:
    """Parse a subject of a source. Raises a problem that names the field if it is invalid."""
    try:
        return plugin.subject(text, options)
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
