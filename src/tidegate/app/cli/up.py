"""`tidegate up`, `tidegate work` and `tidegate serve`: processes that stay until they are told to stop."""

from __future__ import annotations

import os
import resource
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from datetime import timedelta
from typing import TYPE_CHECKING

import msgspec
import typer

from tidegate import __version__
from tidegate.cli.running import run
from tidegate.cli.wording import listed

if TYPE_CHECKING:
    from tidegate.app import Application
    from tidegate.engine.credentials.environment_token import EnvironmentToken
    from tidegate.http import Binding
    from tidegate.runtime.service import Service
    from tidegate.runtime.supervisor import StopReport
    from tidegate.settings import Settings

DRAIN_WITHIN = timedelta(seconds=30)
_MOST_NAMES = 8
_HOST = typer.Option(None, help="The address to listen on, instead of the setting http.host.")
_PORT = typer.Option(None, min=0, max=65535, help="The port, instead of the setting http.port; 0: any free one.")
_JSON = typer.Option(False, "--json", help="Print how it started and how it stopped as JSON, a line each.")


class ProcessRole(msgspec.Struct, frozen=True):
    """What a process does beside its share of the leader's duties."""

    name: str
    does: str
    works: bool
    serves: bool
    only_webhooks: bool = False
    """Whether it serves nothing but the webhooks of GitHub."""


UP = ProcessRole("up", "workers, the leader's duties and HTTP", works=True, serves=True)
WORK = ProcessRole("work", "workers", works=True, serves=False)
SERVE = ProcessRole("serve", "HTTP and the leader's duties", works=False, serves=True)
WEBHOOK = ProcessRole(
    "github webhook", "GitHub's webhooks and the leader's duties", works=False, serves=False, only_webhooks=True
)


class Banner(msgspec.Struct, frozen=True, kw_only=True):
    """How a process started."""

    role: str
    version: str
    pid: int
    url: str | None
    """Where it answers; null where it does not."""
    needs_key: bool
    database: str
    server: str
    credentials: list[str]
    """Names only."""
    sources: list[str] = []
    """Names of the sources that this process knows."""
    waits_for: list[str] = []
    """Tokens of the environment that are not in use yet, and why; they are tried again."""


class Stopped(msgspec.Struct, frozen=True, kw_only=True):
    """How a process ended."""

    is_clean: bool
    failed: list[str]
    canceled: list[str]
    """What did not finish in time."""


def up(*, host: str | None = _HOST, port: int | None = _PORT, as_json: bool = _JSON) -> None:
    """Run everything in one process: workers, the leader's duties and HTTP. SIGTERM or Ctrl-C stops it.

    Work under way has 30 s to end; what is left goes on with the next process. Exit 0 when everything ended in time.
    """
    _stay(UP, _configured(host, port), as_json=as_json)


def work(*, host: str | None = _HOST, port: int | None = _PORT, as_json: bool = _JSON) -> None:
    """Run workers. With --port they also tell how they are: /healthz, /readyz and /metrics, and nothing else.

    One of the processes of a deployment leads, whichever; others take over when it goes.
    """
    _stay(WORK, _configured(host, port), as_json=as_json, tells=port is not None)


def serve(*, host: str | None = _HOST, port: int | None = _PORT, as_json: bool = _JSON) -> None:
    """Answer over HTTP and take a share in the leader's duties, without workers: other processes do the work."""
    _stay(SERVE, _configured(host, port), as_json=as_json)


def receive_webhooks(host: str | None, port: int | None, *, as_json: bool) -> None:
    """Receive GitHub's webhooks until the process is stopped. Raises `InvalidSettings` without a secret."""
    from tidegate.core.errors import InvalidSettings
    from tidegate.systems.github.webhooks.settings import GithubWebhookSettings
    from tidegate.systems.github.webhooks.system import UNCONFIGURED

    settings = _configured(host, port)
    if not settings.section(GithubWebhookSettings).secrets:
        raise InvalidSettings(UNCONFIGURED)
    _stay(WEBHOOK, settings, as_json=as_json)


def _configured(host: str | None, port: int | None) -> Settings:
    """The settings, with what the command line says; a process that stays logs from its level upwards."""
    from tidegate.core.telemetry.logs import configure
    from tidegate.settings import Settings

    settings = Settings.load()
    configure(settings.log.format, settings.log.level)
    given = {name: value for name, value in (("host", host), ("port", port)) if value is not None}
    return settings.model_copy(update={"http": settings.http.model_copy(update=given)})


def _stay(role: ProcessRole, settings: Settings, *, as_json: bool, tells: bool = True) -> None:
    from tidegate.core.telemetry.traces import open_traces
    from tidegate.http import Binding

    if role.serves:
        _allow_files(settings.http.most_watchers)
    with ExitStack() as stack:
        binding = stack.enter_context(Binding(settings.http)) if tells else None
        stack.enter_context(open_traces(settings.traces))
        report = run(_run(role, settings, binding, as_json=as_json))
    stopped = Stopped(is_clean=report.is_clean, failed=list(report.failed), canceled=list(report.cancelled))
    typer.echo(msgspec.json.encode(stopped) if as_json else farewell(stopped))
    if not stopped.is_clean:
        raise typer.Exit(1)


def _allow_files(watchers: int) -> None:
    """Have as many files open as there may be watchers, as far as this user may: a connection is one."""
    from tidegate.http.settings import SPARE_FILES

    allowed, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = watchers + SPARE_FILES
    if most != resource.RLIM_INFINITY:
        wanted = min(wanted, most)
    if allowed != resource.RLIM_INFINITY and allowed < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, most))


async def _run(role: ProcessRole, settings: Settings, binding: Binding | None, *, as_json: bool) -> StopReport:
    from tidegate.app import open_application
    from tidegate.runtime.gc_tuning import tune_gc

    async with open_application(settings) as application:
        tokens = _awaited_tokens(application)
        process = application.process(works=role.works, services=_services(role, application, binding))
        banner = await _banner(role, application, binding, tokens)
        typer.echo(msgspec.json.encode(banner) if as_json else greeting(role, banner))
        tune_gc()
        return await process.run(handle_signals=True)


def _services(role: ProcessRole, application: Application, binding: Binding | None) -> Mapping[str, Service]:
    from tidegate.app.serving import serve_operations, serve_systems, serve_webhooks
    from tidegate.engine.system import OpenCollection
    from tidegate.http.channel import ListenerLimit

    if binding is None:
        return {}
    context, systems = application.context, list(application.systems.values())
    if role.only_webhooks:
        return {"http": serve_webhooks(context, systems, binding)}
    if not role.serves:
        return {"http": serve_operations(context, systems, binding)}
    seats = ListenerLimit(context.settings.http.most_listeners)
    if application.find(OpenCollection) is None:  # the dashboard shows runs, and cannot do without them yet
        return {"http": serve_systems(context, systems, binding, seats=seats)}
    from tidegate.dashboard import open_dashboard

    dashboard = open_dashboard(context, systems, seats)
    service = serve_systems(context, systems, binding, seats=seats, further=dashboard)
    return {"http": service, "dashboard": dashboard}


def _awaited_tokens(application: Application) -> list[EnvironmentToken]:
    """Tokens of the environment that are tried again, since their upstream is unavailable."""
    from tidegate.engine.system import OpenCollection

    opened = application.find(OpenCollection)
    tokens = [] if opened is None else [cell.token for cell in opened.collection.cells.values() if cell.token]
    return [token for token in tokens if token.is_awaited]


async def _banner(
    role: ProcessRole, application: Application, binding: Binding | None, tokens: Sequence[EnvironmentToken]
) -> Banner:
    from tidegate.engine.system import OpenCollection

    parts, opened = application.context, application.find(OpenCollection)
    server, embedded = parts.valkey.info, ", embedded" if parts.settings.valkey_url is None else ""
    return Banner(
        role=role.name,
        version=__version__,
        pid=os.getpid(),
        url=None if binding is None else binding.url,
        needs_key=bool(parts.settings.http.keys),
        database=parts.database.name,
        server=f"{server.product} {server.version} at {parts.valkey.address}{embedded}",
        credentials=[] if opened is None else [each.name for each in await opened.collection.list_credentials()],
        sources=[] if opened is None else list(opened.collection.cells),
        waits_for=[f"{token.variable} is tried again until the upstream answers: {token.reason}" for token in tokens],
    )


def greeting(role: ProcessRole, banner: Banner) -> str:
    """How it started, for people."""
    lines = [
        f"Tidegate {banner.version}: {role.does}",
        f"  database     {banner.database}",
        f"  server       {banner.server}",
        f"  credentials  {_credentials(banner)}",
    ]
    if banner.url is not None:
        whom = "with an API key" if banner.needs_key else "to this machine, without a key"
        pages = "/docs tells what can be asked" if role.serves else "/healthz, /readyz and /metrics only"
        if role.only_webhooks:
            pages = "POST /v1/github/webhook is for GitHub, and needs a signature instead of a key"
        lines.insert(1, f"  answers at   {banner.url} {whom}; {pages}")
        if role.serves:
            lines.insert(2, f"  dashboard    open {banner.url}/")
    lines.append(f"  stop         Ctrl-C, or kill {banner.pid}; work under way has {DRAIN_WITHIN.seconds} s to end")
    return "\n".join(lines)


def _credentials(banner: Banner) -> str:
    names = listed(banner.credentials, _MOST_NAMES)
    if names or banner.waits_for:
        return "; ".join([*([names] if names else []), *banner.waits_for])
    return "none yet: store one with `tidegate credentials add`"


def farewell(stopped: Stopped) -> str:
    """How it ended, for people."""
    if stopped.is_clean:
        return "stopped in good order; what is left to do goes on with the next process"
    late = [f"did not end in time: {', '.join(stopped.canceled)}"] if stopped.canceled else []
    fell = [f"fell while it ended: {', '.join(stopped.failed)}"] if stopped.failed else []
    return f"stopped; {'; '.join([*late, *fell])}. What they held goes on with the next process"
