"""`tidegate simulate github`"""

import asyncio
import signal
from datetime import datetime

import msgspec
import typer

from tidegate.cli.running import run
from tidegate.kernel.errors import InvalidArgument
from tidegate.simulators.github import (
    GithubSimulator,
    LimitSettings,
    Manners,
    Report,
    SimulatorConfig,
    WorldShape,
    parse_faults,
)

app = typer.Typer(help="Run an upstream of your own, to try things against.", no_args_is_help=True)


@app.callback()
def _group() -> None:
    """Keep this a group although it has one command."""


@app.command()
def github(
    *,
    port: int = typer.Option(0, help="Where to listen; 0: any free port."),
    host: str = typer.Option("127.0.0.1", help="The address to listen on."),
    seed: int = typer.Option(1, help="The world is made from this."),
    users: int = typer.Option(25, help="How many users there are to collect."),
    epoch: str | None = typer.Option(None, help="When the generated past ends (ISO 8601); else the last full hour."),
    quota: int = typer.Option(5_000, help="Calls per window and token owner."),
    window_s: float = typer.Option(3_600, help="The length of a window in seconds."),
    minute_s: float = typer.Option(60, help="The length of a minute, for search and the secondary limits."),
    pause_s: int = typer.Option(60, help="How long a secondary limit asks to wait."),
    latency_ms: float = typer.Option(0, help="How long an answer takes, give or take half of it."),
    faults: str = typer.Option("", help="What goes wrong, as shares: 502=0.01,reset@repo.issues=0.05"),
    error_pause_s: float = typer.Option(10, help="How long it takes until a 502 or 504 comes."),
    restless: float = typer.Option(0, help="The chance that something changes after each page that is read."),
    as_json: bool = typer.Option(
        False, "--json", help="Print the address and the tokens, and the report at the end, as JSON."
    ),
) -> None:
    """Answer as GitHub does, limits and moods included, until interrupted; then tell what was called."""
    config = SimulatorConfig(
        host=host,
        port=port,
        world=WorldShape(seed=seed, users=users, epoch=_moment(epoch)),
        limits=LimitSettings(quota=quota, window_s=window_s, minute_s=minute_s, pause_s=pause_s),
        manners=Manners(
            latency_ms=latency_ms, faults=parse_faults(faults), error_pause_s=error_pause_s, restless=restless
        ),
    )
    run(_serve(config, as_json=as_json))


def _moment(text: str | None) -> datetime | None:
    try:
        return None if text is None else datetime.fromisoformat(text)
    except ValueError:
        raise InvalidArgument("epoch", text, "must be a moment in ISO 8601") from None


async def _serve(config: SimulatorConfig, *, as_json: bool) -> None:
    stopping = asyncio.Event()
    for one in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(one, stopping.set)
    async with GithubSimulator(config) as simulator:
        _greet(simulator, as_json=as_json)
        await stopping.wait()
        _part(simulator.report(), as_json=as_json)


def _greet(simulator: GithubSimulator, *, as_json: bool) -> None:
    world = simulator.world
    everybody = [*world.operators(), *world.logins()]
    if as_json:
        tokens = {login: simulator.token_of(login) for login in everybody}
        greeting = {"url": simulator.url, "logins": world.logins(), "operators": world.operators(), "tokens": tokens}
        typer.echo(msgspec.json.encode(greeting))
        return
    logins = world.logins()
    typer.echo(f"GitHub, simulated, at {simulator.url} with {len(logins)} users: {', '.join(logins[:3])}, …")
    typer.echo(f"A token: {simulator.token_of(everybody[0])} (more at {simulator.url}/_sim/tokens)")
    typer.echo(f"What was called: {simulator.url}/_sim/report   Ctrl-C stops it.")


def _part(report: Report, *, as_json: bool) -> None:
    if as_json:
        typer.echo(msgspec.json.encode(report))
        return
    typer.echo(f"{report.calls} calls, {report.not_modified} of them answered with 304; limits broken: {report.broken}")
    for rule, times in report.violations.items():
        typer.echo(f"  {rule}: {times}")
