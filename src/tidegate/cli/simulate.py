"""`tidegate simulate github`, `tidegate simulate game` and `tidegate simulate marketplace`"""

from __future__ import annotations

import asyncio
import signal
from datetime import datetime
from typing import TYPE_CHECKING
from urllib.parse import quote_plus

import msgspec
import typer

from tidegate.core.errors import InvalidArgument

# A simulator is a world of its own: nothing else of the product is imported for it, and of the simulators only one.
if TYPE_CHECKING:
    from tidegate_simulators import game as of_game
    from tidegate_simulators import github as of_github
    from tidegate_simulators import marketplace as of_market

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
    import uvloop

    from tidegate_simulators import github as of_github

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
    import uvloop

    from tidegate_simulators import game as of_game

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


@app.command()
def marketplace(
    *,
    port: int = typer.Option(0, help="Where the first host listens, the others on the next ports; 0: any free ports."),
    host: str = typer.Option("127.0.0.1", help="The address to listen on."),
    seed: int = typer.Option(1, help="The world is made from this."),
    hosts: int = typer.Option(1, help="How many hosts there are, each with its part of the products."),
    products: int = typer.Option(20_000, help="How many products there are at the start."),
    keywords: int = typer.Option(20, help="How many searches find something."),
    per_page: int = typer.Option(40, help="How many products are on a page."),
    steps_every_s: float = typer.Option(
        0, help="How often something changes by itself; 0: only by POST /admin/advance."
    ),
    identities: int = typer.Option(20, help="How many identities are known."),
    only_known: bool = typer.Option(False, help="Whether everybody else is refused."),
    per_identity: int = typer.Option(600, help="Calls of an identity to a host in any minute; 0: no limit."),
    per_host: int = typer.Option(0, help="Calls of everybody to a host in any second; 0: no limit."),
    strikes: int = typer.Option(5, help="So many calls beyond that ban the identity; 0: never."),
    ban_s: float = typer.Option(600, help="How long a ban lasts."),
    crawl_delay_s: float = typer.Option(0, help="What robots.txt asks for; 0: nothing."),
    delay_s: float = typer.Option(0, help="The crawler's own delay between two calls to a host, to be checked."),
    leeway_ms: float = typer.Option(0, help="How much too early a call may come."),
    latency_ms: float = typer.Option(0, help="How long an answer takes, give or take half of it."),
    faults: str = typer.Option("", help="What goes wrong, as shares: 502=0.01,captcha@search=0.05"),
    noise: bool = typer.Option(False, help="Whether every answer has something in it that no other has."),
    as_json: bool = typer.Option(
        False, "--json", help="Print the addresses and identities, and the report at the end, as JSON."
    ),
) -> None:
    """Answer as a marketplace does, until interrupted; then tell whether anybody was impolite."""
    import uvloop

    from tidegate_simulators import marketplace as of_market

    config = of_market.MarketplaceConfig(
        host=host,
        port=port,
        identities=identities,
        only_known=only_known,
        world=of_market.WorldShape(
            seed=seed,
            hosts=hosts,
            products=products,
            keywords=keywords,
            per_page=per_page,
            steps_every_s=steps_every_s or None,
        ),
        limits=of_market.LimitSettings(
            per_identity=per_identity or None,
            per_host=per_host or None,
            strikes_until_ban=strikes or None,
            ban_s=ban_s,
        ),
        robots=of_market.RobotsSettings(groups=(of_market.RobotsGroup(crawl_delay_s=crawl_delay_s or None),)),
        politeness=of_market.Politeness(delay_s=delay_s, leeway_ms=leeway_ms),
        manners=of_market.Manners(latency_ms=latency_ms, faults=of_market.parse_faults(faults), noise=noise),
    )
    uvloop.run(_serve_marketplace(of_market.MarketplaceSimulator(config), as_json=as_json))


def _stopping() -> asyncio.Event:
    """Set when this process is asked to stop."""
    stopping = asyncio.Event()
    for one in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(one, stopping.set)
    return stopping


async def _serve_game(simulator: of_game.GameSimulator, *, as_json: bool) -> None:
    stopping = _stopping()
    async with simulator:
        _greet_players(simulator, as_json=as_json)
        await stopping.wait()
        _part_from_players(simulator.report(), as_json=as_json)


def _greet_players(simulator: of_game.GameSimulator, *, as_json: bool) -> None:
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


def _part_from_players(report: of_game.Report, *, as_json: bool) -> None:
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


async def _serve_marketplace(simulator: of_market.MarketplaceSimulator, *, as_json: bool) -> None:
    stopping = _stopping()
    async with simulator:
        _greet_crawlers(simulator, as_json=as_json)
        await stopping.wait()
        _part_from_crawlers(simulator.report(), as_json=as_json)


def _greet_crawlers(simulator: of_market.MarketplaceSimulator, *, as_json: bool) -> None:
    world, urls = simulator.world, simulator.urls
    if as_json:
        greeting = {
            "urls": urls,
            "keywords": world.keywords,
            "identities": simulator.identities,
            "products": world.living,
            "report": f"{urls[0]}/admin/report",
        }
        typer.echo(msgspec.json.encode(greeting))
        return
    typer.echo(f"A marketplace, simulated, with {world.living:,} products: {', '.join(urls)}")
    typer.echo(f"Try {urls[0]}/search?q={quote_plus(world.keywords[0])}; identities: {urls[0]}/admin/identities")
    typer.echo(f"What was called: {urls[0]}/admin/report   Ctrl-C stops it.")


def _part_from_crawlers(report: of_market.Report, *, as_json: bool) -> None:
    if as_json:
        typer.echo(msgspec.json.encode(report))
        return
    refused = sum(report.refused.values())
    typer.echo(f"{report.calls:,} calls, {refused:,} of them refused, {report.not_modified:,} answered with 304")
    typer.echo(f"Rules of politeness broken: {report.broken:,}")
    for rule, times in report.violations.items():
        typer.echo(f"  {rule}: {times:,}")
    for one in report.hosts:
        if one.smallest_gap_ms is not None:
            typer.echo(f"  {one.url}: {one.calls:,} calls, at least {one.smallest_gap_ms:,.1f} ms apart")


async def _serve_github(simulator: of_github.GithubSimulator, *, as_json: bool) -> None:
    stopping = _stopping()
    async with simulator:
        _greet_collectors(simulator, as_json=as_json)
        await stopping.wait()
        _part_from_collectors(simulator.report(), as_json=as_json)


def _greet_collectors(simulator: of_github.GithubSimulator, *, as_json: bool) -> None:
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


def _part_from_collectors(report: of_github.Report, *, as_json: bool) -> None:
    if as_json:
        typer.echo(msgspec.json.encode(report))
        return
    typer.echo(f"{report.calls} calls, {report.not_modified} of them answered with 304; limits broken: {report.broken}")
    for rule, times in report.violations.items():
        typer.echo(f"  {rule}: {times}")
