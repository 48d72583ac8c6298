"""`tidegate collect --source NAME SUBJECT...`: collect from a source of the setting `sources`."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec
import typer

from tidegate.cli.running import load_settings, run_traced
from tidegate.engine.lifecycle import ACTIVE_RUNS, RunState

if TYPE_CHECKING:
    from tidegate.engine.runs import Run
    from tidegate.settings import Settings


class SourceSummary(msgspec.Struct, frozen=True, kw_only=True):
    """What became of the runs."""

    complete: bool
    """Whether every run was completed and no job of it failed."""
    documents: dict[str, int]
    """What is stored of these subjects, by kind."""
    runs: "list[Run]"


def collect_source(source: str, subjects: Sequence[str], *, as_json: bool) -> int:
    """Collect `subjects`, print what came of it, and return the exit code: 0, 1, or 130 when it was interrupted."""
    if not subjects:
        raise typer.BadParameter("name at least one subject to collect")
    settings = load_settings()
    summary = run_traced("collect", settings, _collect(settings, source, subjects))
    if as_json:
        typer.echo(msgspec.json.encode(summary))
    else:
        for run in summary.runs:
            failed = f", {run.failed_jobs} failed" if run.failed_jobs else ""
            typer.echo(
                f"{run.login}: {run.status}, {run.succeeded_jobs} of {run.total_jobs} pages{failed}, {run.calls} calls"
            )
            if run.last_error is not None:
                typer.echo(f"  {run.last_error}")
        typer.echo(
            f"documents: {', '.join(f'{count:,} {kind}' for kind, count in summary.documents.items()) or 'none'}"
        )
    if any(run.status in ACTIVE_RUNS for run in summary.runs):
        return 130
    return 0 if summary.complete else 1


async def _collect(settings: "Settings", source: str, texts: Sequence[str]) -> SourceSummary:
    from tidegate.app.sources import open_configured
    from tidegate.connections import open_context
    from tidegate.engine.registry import subject_of

    async with open_context(settings) as context, open_configured(context, [source]) as collection:
        subjects = [subject_of(collection.cells[source].source, text) for text in dict.fromkeys(texts)]
        runs = await collection.collect(source, subjects, handle_signals=True)
        store = collection.documents.of(source)
        documents = {
            kind: sum([await store.count(kind, subject.user_id) for subject in subjects])
            for kind in await store.kinds()
        }
    complete = all(run.status is RunState.COMPLETED and not run.failed_jobs for run in runs)
    return SourceSummary(complete=complete, documents=documents, runs=runs)
