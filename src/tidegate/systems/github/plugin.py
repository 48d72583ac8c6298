"""Declares GitHub as a source: credentials, options and statistics."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any

from tidegate.core.errors import InvalidArgument, InvalidSettings
from tidegate.engine.source_plugin import ResourceUnit, SourceParts, SourcePlugin
from tidegate.systems.github.kinds import COLUMNS, REPOSITORY_PREFIX, USER_BASIC, bucket_of, require_kinds
from tidegate.systems.github.settings import API_URL, NAME, VARIABLE, GithubSettings

if TYPE_CHECKING:
    from tidegate.engine.calls import UpstreamCalls
    from tidegate.engine.credentials import Authority
    from tidegate.engine.source import Subject
    from tidegate.settings import Settings
    from tidegate.storage.documents import Documents
    from tidegate.system import Context
    from tidegate.systems.github.source import GithubSource


class GithubPlugin(SourcePlugin):
    """The source plug-in of GitHub."""

    name = NAME
    columns = COLUMNS
    usual_audience = API_URL
    checks_tokens = True
    unit = ResourceUnit("repository", "repositories", REPOSITORY_PREFIX)

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self._github = settings.section(GithubSettings)
        self.moved_from = self._github.moved_from

    @cached_property
    def source(self) -> GithubSource:
        """The source for the address of the settings."""
        from tidegate.systems.github.source import GithubSource

        return GithubSource(self._github.api_url, self._github.kinds)

    def subject(self, text: str, options: Mapping[str, Any] | None = None) -> Subject:
        """Parse a user, repository, organization or search; see `tidegate.systems.github.subjects`."""
        from tidegate.systems.github.subjects import parse_subject

        return parse_subject(text).with_options(options or {})

    def user(self, text: str) -> str:
        """Parse the login of a user: `octocat`, `@octocat`, or the URL of a profile."""
        from tidegate.systems.github.subjects import parse_login

        return parse_login(text)

    def owner(self, text: str) -> str:
        """The account in lower case, without a prefix: `github` for `org:GitHub`."""
        return self.user(text.removeprefix("org:"))

    def owner_of(self, subject: Subject) -> str | None:
        """The account that owns all repositories of a subject; None if there may be several."""
        from tidegate.systems.github.subjects import parse_subject

        return parse_subject(subject.login).account

    def resource_of(self, subject: Subject) -> str | None:
        """The repository of a run; None if it covers all of its owner."""
        from tidegate.systems.github.subjects import SubjectKind, parse_subject

        wanted = parse_subject(subject.login)
        return wanted.id if wanted.kind is SubjectKind.REPOSITORY else None

    def options(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Parse options: kinds and repositories to collect, how far back, and whether to collect everything again."""
        from tidegate.systems.github.states import parse_since

        options = {name: value for name, value in given.items() if value not in (None, False, [])}
        options |= {name: given[name] for name in ("archived", "forks") if given.get(name) is not None}
        if include := options.get("include"):
            named = [name.strip() for several in include for name in several.split(",") if name.strip()]
            options["include"] = sorted(require_kinds(named))
        if (since := options.get("since")) is not None:
            options["since"] = parse_since(since)
            if datetime.fromisoformat(parse_since(since)) > datetime.now(UTC):
                raise InvalidArgument("since", since, "is in the future, so nothing would be collected")
        return options

    def at(self, api_url: str) -> Settings:
        """The settings with another API address: of GitHub Enterprise, or of a simulator."""
        from tidegate.systems.github.requests import require_api_url

        github = self._github.model_copy(update={"api_url": require_api_url(api_url)})
        return self.settings.model_copy(update={"github": github})

    def kinds_of(self, subject: Subject) -> frozenset[str]:
        """The kinds in the options of a run, otherwise those of the settings."""
        return self.source.kinds_to_collect(subject)

    def bucket_of(self, kind: str) -> str:
        """The bucket of the jobs of a kind."""
        return bucket_of(kind)

    def is_missing_subject(self, kind: str, resource: str, reason: str) -> bool:
        """Whether a failure means that the user, organization or repository does not exist."""
        return kind == USER_BASIC and reason.startswith("404") and not resource.endswith("/repos")

    def next_commands(self, login: str) -> list[str]:
        """Suggestions after a collection: statistics and an export."""
        return [f"tidegate stats {login}", *super().next_commands(login)]

    def authority(self, client: UpstreamCalls) -> Authority:
        """The authority that checks tokens and issues tokens of apps."""
        from tidegate.systems.github.authority import GithubAuthority

        return GithubAuthority(client, self._github.api_url)

    async def check(self, token: str | None) -> None:
        """Raise `InvalidSettings` if GitHub refuses the token. If it cannot be checked now, no error is raised."""
        if not token:
            return
        from tidegate.engine.credentials import SecretRefused, SecretUncheckable
        from tidegate.engine.credentials.authority import require_token
        from tidegate.engine.upstream import UpstreamClient, UpstreamFailed
        from tidegate.engine.upstream.settings import UpstreamSettings

        token = require_token(token)
        async with UpstreamClient(self.settings.section(UpstreamSettings)) as client:
            try:
                await self.authority(client).check(token, identify=False)
            except SecretRefused as refused:
                raise InvalidSettings(
                    f"{VARIABLE} cannot be used: {self._github.api_url} says {refused.reason}"
                ) from None
            except (
                UpstreamFailed,
                SecretUncheckable,
            ):  # GitHub may be available later; the process starts and reports it
                return

    @asynccontextmanager
    async def open(self, cell: Context, client: UpstreamCalls, documents: Documents) -> AsyncGenerator[SourceParts]:
        """Open the statistics of users, which each run updates before it completes."""
        del client
        from tidegate.systems.github.statistics import Statistics

        statistics = Statistics(cell.database, documents.of(self.name))
        cell.share(statistics)
        yield SourceParts(finalizers=[statistics.finalize])
