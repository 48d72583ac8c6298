"""`tidegate crawl schedules`: crawls that start on a schedule."""

import typer

from tidegate.engine.commands.schedules import pause, print_schedules, remove, resume, trigger
from tidegate.systems.crawl.commands.opening import (
    IGNORE_ROBOTS,
    JSON,
    KEYWORDS,
    NAME,
    PAGES,
    SITE,
    URL,
    ask,
    options_of,
    query,
)

app = typer.Typer(no_args_is_help=True, help="Crawls that start on a schedule.")
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
    cron: str = typer.Option(help='Minute, hour, day of month, month, day of week: "0 3 * * *" is every day at 03:00.'),
    timezone: str = typer.Option("UTC", help="Time zone of the cron expression, like Europe/Berlin."),
    site: str = SITE,
    pages: int = PAGES,
    ignore_robots: bool = IGNORE_ROBOTS,
    as_json: bool = JSON,
) -> None:
    """Schedule a crawl. A schedule with the same name and time gets the new options.

    A due time is skipped while the previous run is active. If due times pass while no process runs, one run starts
    with the next process.
    """
    options = options_of(name, url, keywords, site, pages, ignore_robots=ignore_robots)
    added = ask(lambda crawl: crawl.crawls.schedule(name, options, cron=cron, timezone=timezone))
    print_schedules("schedules", [added], as_json=as_json)


@app.command("list")
def list_(*, as_json: bool = JSON) -> None:
    """Show the schedules of crawls, with the next due time and the result of the last one."""
    from tidegate.engine.schedules.store import listed
    from tidegate.systems.crawl import SOURCE

    found = query(lambda database: database.read(listed, None, 0, None, SOURCE))
    if found or as_json:
        print_schedules("schedules", found, as_json=as_json)
    else:
        typer.echo(
            'There are no schedules. Add one: tidegate crawl schedules add NAME --url URL -k WORD --cron "0 3 * * *"'
        )
