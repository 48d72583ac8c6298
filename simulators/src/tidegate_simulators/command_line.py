"""The commands `github`, `game` and `marketplace`, also available as `tidegate simulate`.

Each serves until SIGINT or SIGTERM and then prints its report. A simulator is imported when its command runs.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, Protocol, TypeVar
from urllib.parse import quote_plus

import msgspec
import typer
from typer.core import TyperGroup

from tidegate_simulators.errors import InvalidArgument, SimulatorError

if TYPE_CHECKING:
    from tidegate_simulators import game as game_api
    from tidegate_simulators import github as github_api
    from tidegate_simulators import marketplace as market_site
    from tidegate_simulators.stalls import StallReport

ReportT = TypeVar("ReportT")
ReportT_co = TypeVar("ReportT_co", covariant=True)

Host = Annotated[str, typer.Option(help="Address to listen on.")]
Port = Annotated[int, typer.Option(help="Port to listen on; 0: any free port.")]
Seed = Annotated[int, typer.Option(help="Seed of the generated data.")]
Latency = Annotated[float, typer.Option(help="Mean latency of an answer; it varies by half of it.")]
BanLength = Annotated[float, typer.Option(help="Length of a ban.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print the addresses and credentials, and the report, as JSON.")]


class _OneLineErrors(TyperGroup):
    """Prints a `SimulatorError` in one line and exits with 1."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except SimulatorError as error:
            typer.echo(f"{ctx.find_root().info_name}: {error}", err=True)
            raise typer.Exit(1) from None


app = typer.Typer(cls=_OneLineErrors, help="Run a simulated upstream.", no_args_is_help=True, add_completion=False)


def main() -> None:
    """Run a command of `tidegate-simulators`."""
    app(prog_name="tidegate-simulators")


@app.command()
def github(
    *,
    port: Port = 0,
    host: Host = "127.0.0.1",
    seed: Seed = 1,
    users: int = typer.Option(25, help="Number of users."),
    epoch: str | None = typer.Option(
        None, help="End of the generated history (ISO 8601); by default the last full hour."
    ),
    quota: int = typer.Option(5_000, help="Requests per window and token owner."),
    window_s: float = typer.Option(3_600, help="Length of a window in seconds."),
    minute_s: float = typer.Option(60, help="Length of a minute, for search and the secondary limits."),
    pause_s: int = typer.Option(60, help="Retry-After of a secondary limit."),
    latency_ms: Latency = 0,
    faults: str = typer.Option(
        "", help="Share of requests that fail, by kind and route: 502=0.01,reset@repo.issues=0.05"
    ),
    error_pause_s: float = typer.Option(10, help="Delay before a 502 or 504."),
    restless: float = typer.Option(0, help="Probability that data changes after a page was read."),
    webhook: str | None = typer.Option(None, help="Address to which webhooks report each change."),
    webhook_secret: str = typer.Option("", envvar="WEBHOOK_SECRET", help="Secret that signs them."),
    as_json: AsJson = False,
) -> None:
    """Simulate GitHub with its rate limits and faults; report the requests and violations at the end."""
    from tidegate_simulators import github as github_api

    config = github_api.SimulatorConfig(
        host=host,
        port=port,
        world=github_api.WorldShape(seed=seed, users=users, epoch=_time(epoch)),
        limits=github_api.LimitSettings(quota=quota, window_s=window_s, minute_s=minute_s, pause_s=pause_s),
        behaviour=github_api.Behaviour(
            latency_ms=latency_ms,
            faults=github_api.parse_faults(faults),
            error_pause_s=error_pause_s,
            restless=restless,
        ),
    )
    simulator = github_api.GithubSimulator(config)
    if webhook is not None:
        simulator.webhooks.register(webhook, webhook_secret)
    _serve(simulator, lambda: _greet_github(simulator), _github_lines, as_json=as_json)


def _time(text: str | None) -> datetime | None:
    try:
        return None if text is None else datetime.fromisoformat(text)
    except ValueError:
        raise InvalidArgument("epoch", text, "must be a time in ISO 8601") from None


@app.command()
def game(
    *,
    port: Port = 0,
    host: Host = "127.0.0.1",
    seed: Seed = 1,
    subjects: int = typer.Option(18_000_000, help="Number of characters; their ids start at 1."),
    missing: float = typer.Option(0.01, help="Share of these ids that do not exist."),
    tempi: str = typer.Option(
        "", help="Change intervals in seconds, by share of the characters: 0.1=60,0.5=3600,0.4=never"
    ),
    speed: float = typer.Option(1, help="Speed of the simulated time; the limits use real time."),
    body_bytes: int = typer.Option(300_000, help="Size of an answer before compression."),
    keys: int = typer.Option(1, help="Number of API keys; each has its own limits."),
    per_second: int = typer.Option(500, help="Requests of a key in any window of one second."),
    per_day: int = typer.Option(20_000_000, help="Requests of a key in any window of one day."),
    day_s: float = typer.Option(86_400, help="Length of a day in seconds."),
    strikes: int = typer.Option(100, help="Requests over a limit until the key is banned; 0: never."),
    ban_s: BanLength = 600,
    latency_ms: Latency = 0,
    faults: str = typer.Option("", help="Share of requests that fail, by kind and character: 502=0.01,reset@17=1"),
    etags: bool = typer.Option(False, help="Send an ETag, and 304 when it matches."),
    as_json: AsJson = False,
) -> None:
    """Simulate the API of a large game with answers of 300 KB; report the requests and violations at the end."""
    from tidegate_simulators import game as game_api

    config = game_api.GameConfig(
        host=host,
        port=port,
        world=game_api.WorldShape(
            seed=seed,
            subjects=subjects,
            missing=missing,
            tempi=game_api.parse_tempi(tempi) or game_api.WorldShape().tempi,
            speed=speed,
            body_bytes=body_bytes,
        ),
        limits=game_api.LimitSettings(
            keys=keys,
            per_second=per_second,
            per_day=per_day,
            day_s=day_s,
            strikes_until_ban=strikes or None,
            ban_s=ban_s,
        ),
        behaviour=game_api.Behaviour(latency_ms=latency_ms, faults=game_api.parse_faults(faults), etags=etags),
    )
    simulator = game_api.GameSimulator(config)
    _serve(simulator, lambda: _greet_game(simulator), _game_lines, as_json=as_json)


@app.command()
def marketplace(
    *,
    port: int = typer.Option(0, help="Port of the first host, the others use the next ones; 0: any free ports."),
    host: Host = "127.0.0.1",
    seed: Seed = 1,
    hosts: int = typer.Option(1, help="Number of hosts; the products are divided among them."),
    products: int = typer.Option(20_000, help="Number of products at the start."),
    keywords: int = typer.Option(20, help="Number of keywords that a search finds."),
    per_page: int = typer.Option(40, help="Products per page."),
    steps_every_s: float = typer.Option(0, help="Interval of changes; 0: only by POST /admin/advance."),
    identities: int = typer.Option(20, help="Number of known identities."),
    only_known: bool = typer.Option(False, help="Refuse unknown identities."),
    per_identity: int = typer.Option(600, help="Requests of an identity to a host in any minute; 0: no limit."),
    per_host: int = typer.Option(0, help="Requests of all identities to a host in any second; 0: no limit."),
    strikes: int = typer.Option(5, help="Requests over a limit until the identity is banned; 0: never."),
    ban_s: BanLength = 600,
    crawl_delay_s: float = typer.Option(0, help="Crawl-delay of robots.txt; 0: none."),
    delay_s: float = typer.Option(0, help="Delay between two requests to a host that the crawler promises; checked."),
    leeway_ms: float = typer.Option(0, help="Tolerance of the delay check."),
    latency_ms: Latency = 0,
    faults: str = typer.Option("", help="Share of requests that fail, by kind and route: 502=0.01,captcha@search=0.05"),
    noise: bool = typer.Option(False, help="Add a unique part to every answer."),
    as_json: AsJson = False,
) -> None:
    """Simulate a marketplace with robots.txt; report the requests and violations at the end."""
    from tidegate_simulators import marketplace as market_site

    config = market_site.MarketplaceConfig(
        host=host,
        port=port,
        identities=identities,
        only_known=only_known,
        world=market_site.WorldShape(
            seed=seed,
            hosts=hosts,
            products=products,
            keywords=keywords,
            per_page=per_page,
            steps_every_s=steps_every_s or None,
        ),
        limits=market_site.LimitSettings(
            per_identity=per_identity or None,
            per_host=per_host or None,
            strikes_until_ban=strikes or None,
            ban_s=ban_s,
        ),
        robots=market_site.RobotsSettings(groups=(market_site.RobotsGroup(crawl_delay_s=crawl_delay_s or None),)),
        politeness=market_site.Politeness(delay_s=delay_s, leeway_ms=leeway_ms),
        behaviour=market_site.Behaviour(latency_ms=latency_ms, faults=market_site.parse_faults(faults), noise=noise),
    )
    simulator = market_site.MarketplaceSimulator(config)
    _serve(simulator, lambda: _greet_marketplace(simulator), _marketplace_lines, as_json=as_json)


class _Served(Protocol[ReportT_co]):
    """A simulator, as far as `_serve` needs it."""

    async def start(self) -> None: ...

    async def stop(self) -> None: ...

    def report(self) -> ReportT_co: ...


class _Output(msgspec.Struct):
    """What a command prints at the start and at the end."""

    greeting: dict[str, Any]
    greeting_lines: list[str]


def _serve(
    simulator: _Served[ReportT],
    greet: Callable[[], _Output],
    report_lines: Callable[[ReportT], list[str]],
    *,
    as_json: bool,
) -> None:
    """Serve until SIGINT or SIGTERM."""
    import uvloop

    async def serve() -> None:
        stopping = asyncio.Event()
        for each in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(each, stopping.set)
        await simulator.start()
        try:
            started = greet()
            _print(started.greeting, started.greeting_lines, as_json=as_json)
            await stopping.wait()
            report = simulator.report()
            _print(report, report_lines(report), as_json=as_json)
        finally:
            await simulator.stop()

    uvloop.run(serve())


def _print(content: Any, lines: list[str], *, as_json: bool) -> None:
    typer.echo(msgspec.json.encode(content) if as_json else "\n".join(lines))


def _greet_github(simulator: github_api.GithubSimulator) -> _Output:
    url, logins, operators = simulator.url, simulator.world.logins(), simulator.world.operators()
    tokens = {login: simulator.token_of(login) for login in (*operators, *logins)}
    shown = ", ".join(logins[:3]) + (", …" if len(logins) > 3 else "")
    return _Output(
        {"url": url, "logins": logins, "operators": operators, "tokens": tokens},
        [
            f"GitHub, simulated, at {url} with {len(logins)} users: {shown}",
            f"A token: {next(iter(tokens.values()))} (more at {url}/_sim/tokens)",
            f"Report: {url}/_sim/report   Ctrl-C stops it.",
        ],
    )


def _github_lines(report: github_api.Report) -> list[str]:
    return [
        f"{report.calls} calls, {report.not_modified} of them answered with 304; limits broken: {report.broken}",
        *(f"  {rule}: {times}" for rule, times in report.violations.items()),
        *_uncertain_lines(report.uncertain, report.stalls),
    ]


def _uncertain_lines(windows: int, stalls: StallReport) -> list[str]:
    """A line about windows that could not be judged, if there are any."""
    if not windows:
        return []
    return [f"  uncertain windows: {windows:,}; the simulator stalled for up to {stalls.longest_ms:,.0f} ms"]


def _greet_game(simulator: game_api.GameSimulator) -> _Output:
    url, subjects, key = simulator.url, simulator.config.world.subjects, simulator.api_key
    return _Output(
        {
            "url": url,
            "api_key": key,
            "api_keys": simulator.api_keys,
            "subjects": subjects,
            "report": f"{url}/admin/report",
        },
        [
            f"A game's API, simulated, with {subjects:,} characters: {url}/v1/characters/1 to {subjects}",
            f"Send the header X-Api-Key: {key}",
            f"Report: {url}/admin/report   Ctrl-C stops it.",
        ],
    )


def _game_lines(report: game_api.Report) -> list[str]:
    most, sent_mb, cost = report.most_in_a_second, report.bytes_sent / 1e6, report.cost
    lines = [
        f"{report.calls:,} calls, {report.refused:,} of them refused; limits broken: {report.broken:,}",
        f"  at most {most:,} of one key in any second; {sent_mb:,.1f} MB sent",
        *_uncertain_lines(report.uncertain, report.stalls),
    ]
    if cost.cpu_us_per_call is not None:
        lines.append(f"  {cost.cpu_s:.1f} s of CPU time, {cost.cpu_us_per_call:.0f} µs per call")
    return lines


def _greet_marketplace(simulator: market_site.MarketplaceSimulator) -> _Output:
    world, urls = simulator.world, simulator.urls
    return _Output(
        {
            "urls": urls,
            "keywords": world.keywords,
            "identities": simulator.identities,
            "products": world.living,
            "report": f"{urls[0]}/admin/report",
        },
        [
            f"A marketplace, simulated, with {world.living:,} products: {', '.join(urls)}",
            f"Try {urls[0]}/search?q={quote_plus(world.keywords[0])}; identities: {urls[0]}/admin/identities",
            f"Report: {urls[0]}/admin/report   Ctrl-C stops it.",
        ],
    )


def _marketplace_lines(report: market_site.Report) -> list[str]:
    refused = sum(report.refused.values())
    return [
        f"{report.calls:,} calls, {refused:,} of them refused, {report.not_modified:,} answered with 304",
        f"Rules of politeness broken: {report.broken:,}",
        *(f"  {rule}: {times:,}" for rule, times in report.violations.items()),
        *_uncertain_lines(report.uncertain, report.stalls),
        *(
            f"  {host.url}: {host.calls:,} calls, at least {host.smallest_gap_ms:,.1f} ms apart"
            for host in report.hosts
            if host.smallest_gap_ms is not None
        ),
    ]
