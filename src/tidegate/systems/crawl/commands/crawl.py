"""`tidegate crawl`: crawl a marketplace, once or on a schedule, and show the results."""

import typer

from tidegate.cli.running import load_settings, run_traced
from tidegate.systems.crawl.commands import dead_letters, hosts, identities, products, schedules, tasks
from tidegate.systems.crawl.commands.opening import (
    IGNORE_ROBOTS,
    JSON,
    KEYWORDS,
    NAME,
    PAGES,
    SITE,
    URL,
    options_of,
    print_json,
)

app = typer.Typer(no_args_is_help=True, help="Crawl marketplaces: schedules, identities, products, dead letters.")
app.add_typer(schedules.app, name="schedules")
app.add_typer(identities.app, name="identities")
app.command("tasks")(tasks.tasks)
app.command("products")(products.products)
app.command("product")(products.product)
app.command("forget")(products.forget)
app.command("raws")(dead_letters.raws)
app.command("raw")(dead_letters.raw)
app.command("dead")(dead_letters.dead)
app.command("replay")(dead_letters.replay)
app.command("hosts")(hosts.hosts)

_INTERRUPTED = "Interrupted before the crawl started; the same command continues."


@app.command()
def run(
    name: str = NAME,
    *,
    url: str = URL,
    keywords: list[str] = KEYWORDS,
    site: str = SITE,
    pages: int = PAGES,
    ignore_robots: bool = IGNORE_ROBOTS,
    no_progress: bool = typer.Option(False, "--no-progress", help="Do not show progress."),
    as_json: bool = JSON,
) -> None:
    """Crawl until every page is read and every product is assembled. A repeated command continues, or finds changes.

    robots.txt, Crawl-delay and Retry-After are obeyed, and there is a pause between two calls to a host
    (crawl.delay). Exit code 0: everything was read; 1: something failed, or nothing could be read; 130: interrupted.
    Ctrl-C shuts down gracefully; a second Ctrl-C stops at once.
    """
    from rich.console import Console

    from tidegate.engine.commands.run_text import print_lines
    from tidegate.systems.crawl.commands.crawling import crawl_to_the_end
    from tidegate.systems.crawl.commands.summary import summary_lines

    options = options_of(name, url, keywords, site, pages, ignore_robots=ignore_robots)
    try:
        settings = load_settings()
        work = crawl_to_the_end(settings, name, options, quiet=no_progress or as_json)
        summary = run_traced("crawl run", settings, work)
    except KeyboardInterrupt:
        typer.echo(_INTERRUPTED, err=True)
        raise
    if as_json:
        print_json(summary)
    else:
        print_lines(Console(highlight=False), summary_lines(summary))
    raise typer.Exit(summary.exit_code)
