"""`tidegate up`, `tidegate work` and `tidegate serve`: long-running processes."""

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
from tidegate.cli.running import run, tune_gc
from tidegate.cli.wording import listed
from tidegate.core.errors import InvalidArgument

if TYPE_CHECKING:
    from tidegate.app import Application
    from tidegate.engine.credentials.memory_tokens import EnvironmentToken
    from tidegate.http import Binding
    from tidegate.runtime.service import Service
    from tidegate.runtime.supervisor import StopReport
    from tidegate.settings import Settings

DRAIN_WITHIN = timedelta(seconds=30)
_MOST_NAMES = 8
_HOST = typer.Option(None, help="The address to listen on, instead of the setting http.host.")
_PORT = typer.Option(None, min=0, max=65535, help="The port, instead of the setting http.port; 0: any free one.")
_JSON = typer.Option(False, "--json", help="Print the start and the end as one line of JSON each.")


class ProcessRole(msgspec.Struct, frozen=True):
    """The services of a process, in addition to the leader services."""

    name: str
    does: str
    works: bool
    serves: bool
    only: str | None = None
    """The system of which it serves only the receiver."""


UP = ProcessRole("up", "workers, leader services and HTTP", works=True, serves=True)
WORK = ProcessRole("work", "workers", works=True, serves=False)
SERVE = ProcessRole("serve", "HTTP and leader services", works=False, serves=True)


class Banner(msgspec.Struct, frozen=True, kw_only=True):
    """The data that a process prints at the start."""

    role: str
    version: str
    pid: int
    url: str | None
    """URL of the HTTP server; null without one."""
    needs_key: bool
    database: str
    server: str
    credentials: list[str]
    """Names of the credentials."""
    sources: list[str] = []
    """Names of the known sources."""
    waits_for: list[str] = []
    """Tokens of the environment that are not used yet, with reasons; they are retried."""


class Stopped(msgspec.Struct, frozen=True, kw_only=True):
    """The data that a process prints at the end."""

    is_clean: bool
    failed: list[str]
    canceled: list[str]
    """Services that did not finish in time."""


def up(*, host: str | None = _HOST, port: int | None = _PORT, as_json: bool = _JSON) -> None:
    """Run everything in one process: workers, leader services and HTTP. SIGTERM or Ctrl-C stops it.

    Work in progress has 30 s to finish; the next process continues the rest. Exit code 0: everything finished in time.
    """
    _stay(UP, _configured(host, port), as_json=as_json)


def work(*, host: str | None = _HOST, port: int | None = _PORT, as_json: bool = _JSON) -> None:
    """Run workers. With --port, the process also serves /healthz, /readyz and /metrics.

    One process of a deployment is the leader; if it ends, another one takes over.
    """
    _stay(WORK, _configured(host, port), as_json=as_json, tells=port is not None)


def serve(
    *,
    only: str | None = typer.Option(
        None, help="A system, such as github_webhooks: serve only its routes that other services call with a signature."
    ),
    host: str | None = _HOST,
    port: int | None = _PORT,
    as_json: bool = _JSON,
) -> None:
    """Run the HTTP server and leader services without workers; other processes run the workers.

    With --only, the process answers requests of other services, /healthz, /readyz and /metrics, and nothing else.
    """
    role = SERVE
    if only is not None:
        does = f"the receiver of {only}, and leader services"
        role = ProcessRole("serve", does, works=False, serves=False, only=only)
    _stay(role, _configured(host, port), as_json=as_json)


def _configured(host: str | None, port: int | None) -> Settings:
    """The settings with the options of the command line; also configures the log."""
    from tidegate.core.telemetry.logs import configure_logs
    from tidegate.settings import Settings

    settings = Settings.load()
    configure_logs(settings.log.format, settings.log.level)
    given = {name: value for name, value in (("host", host), ("port", port)) if value is not None}
    return settings.model_copy(update={"http": settings.http.model_copy(update=given)})


def _stay(role: ProcessRole, settings: Settings, *, as_json: bool, tells: bool = True) -> None:
    from tidegate.core.telemetry.traces import open_traces
    from tidegate.http import Binding

    if role.serves:
        _allow_files(settings.http.most_watchers)
    with ExitStack() as stack:
        # Listen before anything else is opened: a port in use ends the command at once, without effects.
        binding = stack.enter_context(Binding(settings.http)) if tells else None
        stack.enter_context(open_traces(settings.traces))
        report = run(_run(role, settings, binding, as_json=as_json))
    stopped = Stopped(is_clean=report.is_clean, failed=list(report.failed), canceled=list(report.cancelled))
    typer.echo(msgspec.json.encode(stopped) if as_json else shutdown_message(stopped))
    if not stopped.is_clean:
        raise typer.Exit(1)


def _allow_files(watchers: int) -> None:
    """Raise the limit of open files for this many live streams, as far as the user's hard limit allows."""
    from tidegate.http.settings import SPARE_FILES

    allowed, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = watchers + SPARE_FILES
    if most != resource.RLIM_INFINITY:
        wanted = min(wanted, most)
    if allowed != resource.RLIM_INFINITY and allowed < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, most))


async def _run(role: ProcessRole, settings: Settings, binding: Binding | None, *, as_json: bool) -> StopReport:
    """Open the application and run the services of `role` until a signal arrives; no HTTP without `binding`."""
    from tidegate.app import open_application

    async with open_application(settings) as application:
        tokens = _awaited_tokens(application)
        process = application.process(works=role.works, services=_services(role, application, binding))
        banner = await _banner(role, application, binding, tokens)
        typer.echo(msgspec.json.encode(banner) if as_json else greeting(role, banner))
        # After the start, so that objects that live as long as the process are left out of collections.
        tune_gc()
        return await process.run(handle_signals=True)


def _services(role: ProcessRole, application: Application, binding: Binding | None) -> Mapping[str, Service]:
    """Return the HTTP services of a role; none without an address to listen on."""
    from tidegate.app.serving import serve_operations, serve_receiver, serve_systems
    from tidegate.engine.system import OpenCollection
    from tidegate.http.events import ListenerLimit

    if binding is None:
        return {}
    context, systems = application.context, list(application.systems.values())
    if role.only is not None:
        opened = application.systems.get(role.only)
        receiver = None if opened is None else opened.receiver()
        if receiver is None:
            raise InvalidArgument("only", role.only, "must be an enabled system with routes for other services")
        return {"http": serve_receiver(context, systems, receiver, binding)}
    if not role.serves:
        return {"http": serve_operations(context, systems, binding)}
    seats = ListenerLimit(context.settings.http.most_listeners)
    if application.find(OpenCollection) is None:  # the dashboard requires the collection
        return {"http": serve_systems(context, systems, binding, seats=seats)}
    from tidegate.dashboard import open_dashboard

    dashboard = open_dashboard(systems, seats)
    service = serve_systems(context, systems, binding, seats=seats, further=dashboard.api())
    return {"http": service, "dashboard": dashboard}


def _awaited_tokens(application: Application) -> list[EnvironmentToken]:
    """Tokens of the environment that are not checked yet, because their upstream is unavailable."""
    from tidegate.engine.system import OpenCollection

    opened = application.find(OpenCollection)
    tokens = [] if opened is None else [cell.token for cell in opened.collection.cells.values() if cell.token]
    return [token for token in tokens if token.is_awaited]


async def _banner(
    role: ProcessRole, application: Application, binding: Binding | None, tokens: Sequence[EnvironmentToken]
) -> Banner:
    """Collect what the first lines of output show: URL, servers, credentials and sources."""
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
        waits_for=[f"{token.variable} is retried until the upstream answers: {token.reason}" for token in tokens],
    )


def greeting(role: ProcessRole, banner: Banner) -> str:
    """The text that is printed at the start."""
    lines = [
        f"Tidegate {banner.version}: {role.does}",
        f"  database     {banner.database}",
        f"  server       {banner.server}",
        f"  credentials  {_credentials(banner)}",
    ]
    if banner.url is not None:
        access = "API key required" if banner.needs_key else "this machine only, without a key"
        pages = "API documentation at /docs" if role.serves else "/healthz, /readyz and /metrics only"
        if role.only is not None:
            pages = "signed requests of other services need no key"
        lines.insert(1, f"  http         {banner.url} ({access}); {pages}")
        if role.serves:
            lines.insert(2, f"  dashboard    open {banner.url}/")
    lines.append(
        f"  stop         Ctrl-C, or kill {banner.pid}; work in progress has {DRAIN_WITHIN.seconds} s to finish"
    )
    return "\n".join(lines)


def _credentials(banner: Banner) -> str:
    names = listed(banner.credentials, _MOST_NAMES)
    if names or banner.waits_for:
        return "; ".join([*([names] if names else []), *banner.waits_for])
    return "none; store one with `tidegate credentials add`"


def shutdown_message(stopped: Stopped) -> str:
    """The text that is printed at the end."""
    if stopped.is_clean:
        return "stopped gracefully; the next process continues the remaining work"
    late = [f"did not finish in time: {', '.join(stopped.canceled)}"] if stopped.canceled else []
    failed = [f"failed while stopping: {', '.join(stopped.failed)}"] if stopped.failed else []
    return f"stopped; {'; '.join([*late, *failed])}. The next process continues their work"
