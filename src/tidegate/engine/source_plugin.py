"""Plug-ins of sources. A plug-in supplies what the application needs of a source besides its requests and answers.

The source itself builds requests and reads answers (`tidegate.engine.source`). The plug-in has credentials, options,
commands and further parts. A system names the plug-ins of its sources:

    class GithubSystem(System):
        sources = {"github": "tidegate.systems.github.plugin:GithubPlugin"}

A source that no system declares, but the setting `sources` or the entry point group `tidegate.sources`, has the plug-in
`OwnSourcePlugin`, which reads optional attributes of the source. `find_plugin` returns a plug-in by the name of its
source and imports no other source. All sources are opened, scheduled, shown and exported through their plug-ins.
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import cache, cached_property
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol

from tidegate.core.errors import InvalidArgument, InvalidSettings
from tidegate.core.plugins import installed_systems, load_part, load_place, load_system, loadable_systems
from tidegate.engine.source import Source

if TYPE_CHECKING:
    from tidegate.engine.calls import CallRoute, UpstreamCalls
    from tidegate.engine.commit_batch import EffectWriter
    from tidegate.engine.completion import Finalizer
    from tidegate.engine.credentials import Authority
    from tidegate.engine.credentials.opening import EncryptedSecrets
    from tidegate.engine.credentials.vault import Vault
    from tidegate.engine.gate_sync import ExcludedCredentials
    from tidegate.engine.source import Source, Subject
    from tidegate.runtime.retention import RetentionRule
    from tidegate.runtime.service import Service
    from tidegate.settings import Settings
    from tidegate.storage.documents import Documents
    from tidegate.storage.documents.export.columns import Column
    from tidegate.system import Context, System

GROUP = "tidegate.sources"
_VARIABLE = "TIDEGATE_SOURCES"
_NEEDS = ("name", "planning_kinds", "first_jobs", "request", "read")
_NAME = re.compile(r"[a-z][a-z0-9_-]{0,39}")


def load_sources(places: Sequence[str], *, taken: Collection[str] = ()) -> dict[str, Source]:
    """The sources at `places` and those of installed distributions, by name.

    Raises `InvalidSettings` for a place without a source, for an invalid name, and for a name that two sources have or
    that is `taken`.
    """
    found: dict[str, Source] = {}
    for place in dict.fromkeys([*places, *(entry.value for entry in entry_points(group=GROUP))]):
        source: Source = load_part(place, variable=_VARIABLE, what="source", needs=_NEEDS, is_made=_is_made)
        if not _NAME.fullmatch(source.name):
            raise InvalidSettings(
                f"{_VARIABLE}: {place}: invalid source name {source.name!r}: use lower-case letters, digits, - and _"
            )
        if source.name in found or source.name in taken:
            raise InvalidSettings(f"{_VARIABLE}: {place}: another source has the name {source.name!r}")
        found[source.name] = source
    return found


def _is_made(found: object) -> bool:
    return not isinstance(found, type) and hasattr(found, "first_jobs")


class CallCredentials(Protocol):
    """The credentials of a source: stored ones, `Tokens` of a program, or identities."""

    async def pool_for(self, user_id: str) -> str:
        """Return the pool for the runs of a user. Raises `NoCredential`."""
        ...

    async def secret_of(self, credential: str) -> str:
        """Return the secret of a credential. Raises `NoCredential`."""
        ...

    async def register(self) -> None:
        """Register the current credentials in the gate of the source, and remove others."""
        ...


@dataclass(frozen=True, kw_only=True)
class SourceParts:
    """Optional parts of a source beside `request` and `read`."""

    credentials: CallCredentials | None = None
    """Used instead of stored credentials."""
    route: CallRoute | None = None
    """How its calls are made. Default: the HTTP client that all sources share."""
    finalizers: Sequence[Finalizer] = ()
    """Called when a run of the source has no unfinished jobs."""
    writer: EffectWriter | None = None
    """Writes `Reading.effects` in the transaction that ends the jobs."""
    records_claims: bool = False
    """Whether an execution of a job is recorded when it begins, and not only when it ends: then those of workers that
    died are recorded too, at the cost of another statement for each batch."""
    excluded: ExcludedCredentials | None = None
    """Returns the credentials that must not make the call of a job."""
    services: Mapping[str, Service] = field(default_factory=dict[str, "Service"])
    """Services of every process that knows the source."""
    leader_services: Mapping[str, Service] = field(default_factory=dict[str, "Service"])
    """Services of the leader."""
    retention_rules: Sequence[RetentionRule] = ()
    """Retention rules that the leader applies."""
    on_loss: Sequence[Callable[[], object]] = ()
    """Called in the leader after a process died or a server was unavailable."""


class ResourceUnit(NamedTuple):
    """What plans and progress count beside subjects, such as the repositories of an organization."""

    one: str
    many: str
    prefix: str
    """How the resources of their jobs begin."""


class SourcePlugin:
    """The plug-in of a source. Subclasses set `name`, define `source`, and override further methods if necessary.

    Commands that only need texts import the class too, so its module must not import large modules at the top.
    """

    name: ClassVar[str] | str
    columns: Mapping[str, Sequence[Column]] = {}
    """Columns of exports and synced tables, by kind of document."""
    moved_from: str | None = None
    """The previous address of the same upstream; see `register_source_address`."""
    usual_audience: str = ""
    """The default address of credentials; lists show the address only if it differs."""
    checks_tokens: bool = False
    """Whether `authority` verifies tokens with the upstream when they are stored."""
    unit: ResourceUnit | None = None
    """What plans and progress count beside subjects; None: nothing."""
    stores_credentials: bool = True
    """Whether `tidegate credentials` stores credentials for the source."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings

    @cached_property
    def source(self) -> Source:
        """The source, built from the settings."""
        raise NotImplementedError

    def subject(self, text: str, options: Mapping[str, Any] | None = None) -> Subject:
        """Parse a subject from user input. Raises `InvalidArgument`."""
        from tidegate.engine.source import Subject

        return Subject(user_id=text, login=text, options=options or {})

    def user(self, text: str) -> str:
        """Parse the id of a user from user input, for credentials that serve one user only."""
        return self.subject(text).user_id

    def owner(self, text: str) -> str:
        """Parse the owner of documents from user input."""
        return self.subject(text).user_id

    def owner_of(self, subject: Subject) -> str | None:
        """The owner of the documents and cursors of a subject; None if there can be several."""
        return subject.user_id

    def resource_of(self, subject: Subject) -> str | None:
        """The resource of its owner to which a subject is limited; None for all resources."""
        del subject
        return None

    def options(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Build the options of a run from user input. Raises `InvalidArgument` for an unknown option."""
        wanted = {name: value for name, value in given.items() if value not in (None, False, [])}
        for name, value in wanted.items():
            if name not in getattr(self.source, "options", ()):
                raise InvalidArgument(name, str(value), f"the source {self.name!r} has no such option")
        return wanted

    def at(self, api_url: str) -> Settings:
        """Return the settings with another upstream address. Raises `InvalidArgument` if it cannot be changed."""
        raise InvalidArgument("api_url", api_url, f"the address of the source {self.name!r} cannot be set")

    def kinds_of(self, subject: Subject) -> frozenset[str] | None:
        """The kinds of jobs of a run for `subject`; None if all kinds are possible."""
        del subject
        return None

    def bucket_of(self, kind: str) -> str:
        """The bucket that jobs of a kind spend."""
        del kind
        return "core"

    def command(self, user_id: str, login: str) -> str:
        """The command that continues a run in the foreground."""
        del user_id
        return f"tidegate collect {'' if self.is_default else f'--source {self.name} '}{login}"

    def next_commands(self, login: str) -> list[str]:
        """Commands that show what was collected for a user."""
        from tidegate.storage.documents.export.formats import installed_formats

        del login
        source = "" if self.is_default else f" --source {self.name}"
        return [f"tidegate export{source} --format {installed_formats()[0]} --output DIR"]

    @property
    def is_default(self) -> bool:
        """Whether this is the source of commands that do not name one."""
        from tidegate.engine.settings import CollectSettings

        return self.settings.section(CollectSettings).source == self.name

    def is_missing_subject(self, kind: str, resource: str, reason: str) -> bool:
        """Whether a failure means that the subject does not exist, so that a retry is useless."""
        del kind, resource, reason
        return False

    def authority(self, client: UpstreamCalls) -> Authority:
        """Return the authority that verifies tokens. By default, tokens are stored without a check."""
        del client
        from tidegate.engine.credentials.authority import TokenAuthority

        return TokenAuthority(self.name)

    async def check(self, token: str | None) -> None:
        """Raise a `TidegateError` if the source cannot be opened with these settings and the environment's `token`.

        Called before the schema of the database is migrated, since a migration cannot be undone.
        """
        del token
        _ = self.source

    @asynccontextmanager
    async def open(self, cell: Context, client: UpstreamCalls, documents: Documents) -> AsyncGenerator[SourceParts]:
        """Open the parts of the source in a process that knows it."""
        del cell, client, documents
        yield SourceParts()

    def holding(self, cell: Context, vault: Vault) -> EncryptedSecrets | None:
        """Further secrets that are encrypted with the keys of the installation and included in key rotations."""
        del cell, vault
        return None


class OwnSourcePlugin(SourcePlugin):
    """The plug-in of a source from a program, the setting `sources` or an installed distribution."""

    def __init__(self, settings: Settings, source: Source) -> None:
        super().__init__(settings)
        self._source, self.name = source, source.name
        self.columns = getattr(source, "columns", {})

    @cached_property
    def source(self) -> Source:
        """The source that was given."""
        return self._source

    def subject(self, text: str, options: Mapping[str, Any] | None = None) -> Subject:
        """Parse a subject with `subject` of the source if it has one; else the text is the id."""
        import msgspec

        read: Any = getattr(self._source, "subject", None)
        found: Subject = super().subject(text) if read is None else read(text)
        return msgspec.structs.replace(found, options={**found.options, **options}) if options else found


def source_names(settings: Settings) -> list[str]:
    """Names of all sources that this installation knows. Imports the sources of the setting."""
    systems = [name for system in _enabled(settings) for name in system.sources]
    return sorted({*systems, *load_sources(settings.sources, taken=systems)})


def find_plugin(settings: Settings, name: str) -> SourcePlugin:
    """Return the plug-in of the source `name`. Raises `InvalidArgument` with the names of all known sources.

    Imports as few systems as possible: the one with the name of the source first.
    """
    if name in installed_systems() and (place := load_system(name).sources.get(name)) is not None:
        return load_place(place)(settings)
    for system in loadable_systems():
        if name in system.sources:
            return load_place(system.sources[name])(settings)
    own = own_plugins(settings)
    if name not in own:
        known = ", ".join(source_names(settings)) or "none"
        reason = f"must be one of {known}. List your own sources in TIDEGATE_SOURCES"
        raise InvalidArgument("source", name, reason)
    return own[name]


def own_plugins(settings: Settings) -> dict[str, SourcePlugin]:
    """Return the plug-ins of the setting `sources` and of the entry point group. Raises `InvalidSettings`."""
    taken = [name for system in loadable_systems() for name in system.sources]
    return {
        name: OwnSourcePlugin(settings, source) for name, source in load_sources(settings.sources, taken=taken).items()
    }


@cache
def kind_names() -> Mapping[str, str]:
    """Display names of the kinds of jobs of all installed systems. Kinds without one are displayed as they are."""
    names: dict[str, str] = {}
    for system in loadable_systems():
        if system.kind_names:
            names |= load_place(system.kind_names)
    return names


def system_of(source: str) -> str | None:
    """Return the system of a source; None for a source of the setting `sources` or of the entry point group."""
    return next((system.name for system in loadable_systems() if source in system.sources), None)


def _enabled(settings: Settings) -> list[System]:
    from tidegate.system import enabled_systems

    return enabled_systems(settings)
