"""`tidegate simulate github` and `tidegate simulate game`"""

import asyncio
import signal
from datetime import datetime
from typing import TYPE_CHECKING

import msgspec
import typer
import uvloop

from tidegate.kernel.errors import InvalidArgument

# A simulator is a world of its own: nothing else of the product is imported for it, and of the simulators only one.
if TYPE_CHECKING:
    from tidegate.simulators import game as of_game
    from tidegate.simulators import github as of_github

app = typer.Typer(help="Run an upstream of your own, to try things against.", no_args_is_help=True)


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
    from tidegate.simulators import github as of_github

    config = of_github.SimulatorConfig(
        host=host,
        port=port,
        world=of_github.WorldShape(seed=seed, users=users, epoch=_moment(epoch)),
        limits=of_github.LimitSettings(quota=quota, window_s=window_s, minute_s=minute_s, pause_s=pause_s),
        manners=of_github.Manners(
            latency_ms=latency_ms,
            faults=of_github.parse_faults(faults),
            error_pause_s=error_pause_s,
            restless=restless,
        ),
    )
    uvloop.run(_serve_github(of_github.GithubSimulator(config), as_json=as_json))


def _moment(text: str | None) -> datetime | None:
    try:
        return None if text is None else datetime.fromisoformat(text)
    except ValueError:
        raise InvalidArgument("epoch", text, "must be a moment in ISO 8601") from None


@app.command()
def game(
    *,
    port: int = typer.Option(0, help="Where to listen; 0: any free port."),
    host: str = typer.Option("127.0.0.1", help="The address to listen on."),
    seed: int = typer.Option(1, help="The world is made from this."),
    subjects: int = typer.Option(18_000_000, help="How many characters there are: their ids are 1 to this."),
    missing: float = typer.Option(0.01, help="The share of these ids that do not exist."),
    tempi: str = typer.Option(
        "", help="How often they change, as shares of them and seconds: 0.1=60,0.5=3600,0.4=never"
    ),
    speed: float = typer.Option(1, help="How fast the world's time passes; the limits keep to the clock."),
    body_bytes: int = typer.Option(300_000, help="The size of an answer before compression."),
    keys: int = typer.Option(1, help="How many API keys there are, each with limits of its own."),
    per_second: int = typer.Option(500, help="Calls of a key in any window of a second."),
    per_day: int = typer.Option(20_000_000, help="Calls of a key in any window of a day."),
    day_s: float = typer.Option(86_400, help="The length of a day in seconds."),
    strikes: int = typer.Option(100, help="So many calls beyond a limit ban the key; 0: never."),
    ban_s: float = typer.Option(600, help="How long a ban lasts."),
    latency_ms: float = typer.Option(0, help="How long an answer takes, give or take half of it."),
    faults: str = typer.Option("", help="What goes wrong, as shares: 502=0.01,reset@17=1 (17 is a character's id)"),
    etags: bool = typer.Option(False, help="Whether answers have an ETag, and 304 is given."),
    as_json: bool = typer.Option(
        False, "--json", help="Print the address and the keys, and the report at the end, as JSON."
    ),
) -> None:
    """Answer as a large game's API does, 300 KB at a time, until interrupted; then tell whether a limit was broken."""
    from tidegate.simulators import game as of_game

    config = of_game.GameConfig(
        host=host,
        port=port,
        world=of_game.WorldShape(
            seed=seed,
            subjects=subjects,
            missing=missing,
            tempi=of_game.parse_tempi(tempi) or of_game.WorldShape().tempi,
            speed=speed,
            body_bytes=body_bytes,
        ),
        limits=of_game.LimitSettings(
            keys=keys,
            per_second=per_second,
            per_day=per_day,
            day_s=day_s,
            strikes_until_ban=strikes or None,
            ban_s=ban_s,
        ),
        manners=of_game.Manners(latency_ms=latency_ms, faults=of_game.parse_faults(faults), etags=etags),
    )
    uvloop.run(_serve_game(of_game.GameSimulator(config), as_json=as_json))


def _stopping() -> asyncio.Event:
    """Set when this process is asked to stop."""
    stopping = asyncio.Event()
    for one in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(one, stopping.set)
    return stopping


async def _serve_game(simulator: "of_game.GameSimulator", *, as_json: bool) -> None:
    stopping = _stopping()
    async with simulator:
        _greet_players(simulator, as_json=as_json)
        await stopping.wait()
        _part_from_players(simulator.report(), as_json=as_json)


def _greet_players(simulator: "of_game.GameSimulator", *, as_json: bool) -> None:
    url, subjects = simulator.url, simulator.config.world.subjects
    if as_json:
        greeting = {
            "url": url,
            "api_key": simulator.api_key,
            "api_keys": simulator.api_keys,
            "subjects": subjects,
            "report": f"{url}/admin/report",
        }
        typer.echo(msgspec.json.encode(greeting))
        return
    typer.echo(f"A game's API, simulated, with {subjects:,} characters: {url}/v1/characters/1 to {subjects}")
    typer.echo(f"Send the header X-Api-Key: {simulator.api_key}")
    typer.echo(f"What was called: {url}/admin/report   Ctrl-C stops it.")


def _part_from_players(report: "of_game.Report", *, as_json: bool) -> None:
    if as_json:
        typer.echo(msgspec.json.encode(report))
        return
    typer.echo(f"{report.calls:,} calls, {report.refused:,} of them refused; limits broken: {report.broken:,}")
    typer.echo(
        f"  at most {report.most_in_a_second:,} of one key in any second; {report.bytes_sent / 1e6:,.1f} MB sent"
    )
    cost = report.cost
    if cost.cpu_us_per_call is not None:
        typer.echo(f"  {cost.cpu_s:.1f} s of computing, {cost.cpu_us_per_call:.0f} µs for each call")


async def _serve_github(simulator: "of_github.GithubSimulator", *, as_json: bool) -> None:
    stopping = _stopping()
    async with simulator:
        _greet_collectors(simulator, as_json=as_json)
        await stopping.wait()
        _part_from_collectors(simulator.report(), as_json=as_json)


def _greet_collectors(simulator: "of_github.GithubSimulator", *, as_json: bool) -> None:
    world = simulator.world
    everybody = [*world.operators(), *world.logins()]
    if as_json:
        tokens = {login: simulator.token_of(login) for login in everybody}
        greeting = {"url": simulator.url, "logins": world.logins(), "operators": world.operators(), "tokens": tokens}
        typer.echo(msgspec.json.encode(greeting))
        return
    logins = world.logins()
    shown = ", ".join(logins[:3]) + (", …" if len(logins) > 3 else "")
    typer.echo(f"GitHub, simulated, at {simulator.url} with {len(logins)} users: {shown}")
    typer.echo(f"A token: {simulator.token_of(everybody[0])} (more at {simulator.url}/_sim/tokens)")
    typer.echo(f"What was called: {simulator.url}/_sim/report   Ctrl-C stops it.")


def _part_from_collectors(report: "of_github.Report", *, as_json: bool) -> None:
    if as_json:
        typer.echo(msgspec.json.encode(report))
        return
    typer.echo(f"{report.calls} calls, {report.not_modified} of them answered with 304; limits broken: {report.broken}")
    for rule, times in report.violations.items():
        typer.echo(f"  {rule}: {times}")
