"""`tidegate crawl schedules`: crawls that begin by the clock."""

import typer

from tidegate.engine.commands.schedules import pause, remove, resume, tell, trigger
from tidegate.systems.crawl.commands.opening import (
    IGNORE_ROBOTS,
    JSON,
    KEYWORDS,
    NAME,
    PAGES,
    SITE,
    URL,
    ask,
    look,
    options_of,
)

app = typer.Typer(no_args_is_help=True, help="Crawls that begin by the clock.")
app.command()(pause)
app.command()(resume)
app.command()(remove)
app.command()(trigger)


@app.command()
def add(
    name: str = NAME,
    *,
    url: str = URL,
    keywords: list[str] = KEYWORDS,
    cron: str = typer.Option(help='Minute, hour, day of month, month, day of week: "0 3 * * *" is every day at three.'),
    timezone: str = typer.Option("UTC", help="By whose clocks, like Europe/Berlin."),
    site: str = SITE,
    pages: int = PAGES,
    ignore_robots: bool = IGNORE_ROBOTS,
    as_json: bool = JSON,
) -> None:
    """Crawl whenever the time has come. The same name and time again change only the options.

    A crawl whose last run is still active is left out once. Times that pass while no process runs begin one run when
    the next process starts.
    """
    options = options_of(name, url, keywords, site, pages, ignore_robots=ignore_robots)
    added = ask(lambda crawl: crawl.crawls.schedule(name, options, cron=cron, timezone=timezone))
    tell("schedules", [added], as_json=as_json)


@app.command("list")
def list_(*, as_json: bool = JSON) -> None:
    """Show the schedules of crawls: when they are due next, and what their last due time brought."""
    from tidegate.engine.schedules.store import listed
    from tidegate.systems.crawl import SOURCE

    found = look(lambda database: database.read(listed, None, 0, None, SOURCE))
    if found or as_json:
        tell("schedules", found, as_json=as_json)
    else:
        typer.echo('There are none. Add one: tidegate crawl schedules add NAME --url URL -k WORD --cron "0 3 * * *"')
