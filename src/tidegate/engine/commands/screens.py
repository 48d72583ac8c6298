"""Outputs for progress: a live display in a terminal, plain lines elsewhere, or only messages.

The live display has totals, kinds, active users, permits and waits; drawing it does not read a clock.
"""

import sys
from collections import defaultdict
from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager
from time import monotonic
from typing import Protocol

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from tidegate.cli.running import configure_log
from tidegate.cli.wording import clock, counted, number, span
from tidegate.core.telemetry.logs import LogSettings
from tidegate.engine.commands.permits import Permits, permit_label, permit_text, wait_reasons
from tidegate.engine.commands.plan import CollectionPlan, plan_lines
from tidegate.engine.commands.run_text import (
    STATISTICS,
    print_lines,
    resource_counts,
    statistics_lines,
    subject_word,
    users_line,
)
from tidegate.engine.commands.watching import View
from tidegate.engine.lifecycle import ACTIVE_RUNS, RunState
from tidegate.engine.reports.progress import KindProgress
from tidegate.engine.runs import Run
from tidegate.engine.source_plugin import kind_names

_BAR, _SHORT_BAR = 20, 10
_LONGEST_LOGIN = 24
_LEAST_ROWS = 3
_MOST_PERMITS = 4
_MOST_WAITS = 3
_FRAME = 4
"""Empty lines between the parts, and one at the bottom that keeps the terminal from scrolling."""
_STYLES = {RunState.COMPLETED: "green", RunState.FAILED: "red", RunState.CANCELED: "red"}
_WORDS = {RunState.PLANNING: "finding repositories", RunState.FINALIZING: "computing statistics"}


class ProgressView:
    """Renders views. If there are more users than lines, a user that is shown stays until its run has ended."""

    def __init__(self) -> None:
        self._shown: list[int] = []

    def draw(self, view: View, height: int) -> RenderableType:
        """Render a view in at most `height` lines."""
        head = [Text(line) for line in headline(view)]
        head[0].stylize("bold")
        kinds = _kinds(view)
        foot = [*_permits(view.permits, view), *_waits(view)]
        room = max(_LEAST_ROWS, height - len(head) - kinds.row_count - len(foot) - _FRAME)
        return Group(*head, Text(), kinds, Text(), *self._users(view, room), Text(), *foot)

    def _users(self, view: View, room: int) -> list[RenderableType]:
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
        width = min(_LONGEST_LOGIN, max((len(run.login) for run in view.runs), default=0))
        table.add_column(subject_word(run.user_id for run in view.runs), no_wrap=True, min_width=width)
        table.add_column("", no_wrap=True, min_width=_SHORT_BAR)
        if view.unit is not None:
            table.add_column(view.unit.many, no_wrap=True, justify="right")
        table.add_column("pages", no_wrap=True, justify="right", min_width=7)
        table.add_column("documents", no_wrap=True, justify="right", min_width=9)
        table.add_column("to do", no_wrap=True, overflow="ellipsis", ratio=1)
        shown = view.runs if len(view.runs) < room else self._choose(view, room - 2)
        for run in shown:
            table.add_row(*_user(run, view))
        if shown is view.runs:
            return [table]
        over, more = len(view.runs) - len(view.active), len(view.active) - len(shown)
        return [table, Text(f"… {number(more)} more in progress or waiting, {number(over)} ended", style="dim")]

    def _choose(self, view: View, room: int) -> list[Run]:
        active = {run.id: run for run in view.active}
        kept = [run_id for run_id in self._shown if run_id in active][:room]
        # Then the runs with the most progress: a run that has not started has nothing to show.
        others = sorted((run for run in view.active if run.id not in kept), key=lambda run: (-run.ended_jobs, run.id))
        self._shown = kept + [run.id for run in others[: room - len(kept)]]
        return [active[run_id] for run_id in self._shown]


def headline(view: View) -> list[str]:
    """The totals in three lines, followed by lines for problems."""
    calls, free = sum(run.calls for run in view.runs), sum(run.unchanged_calls for run in view.runs)
    failed = sum(run.failed_jobs for run in view.runs)
    done, pages = sum(run.ended_jobs for run in view.runs), sum(run.total_jobs for run in view.runs)
    got = [
        users_line(view.runs),
        *resource_counts(view.unit, view.resources.values()),
        f"{number(done)} of {counted(pages, 'page')}",
        counted(sum(run.documents for run in view.runs), "document"),
    ]
    spent = [
        counted(calls, "call") + (f", {number(free)} of them free" if free else ""),
        f"{number(view.calls_per_s)} a second",
        *([f"{counted(failed, 'job')} failed"] if failed else []),
    ]
    error = [] if view.error is None else [f"not up to date: {view.error}"]
    stuck = [f"{STATISTICS} {line}" for line in statistics_lines(view.failed_completions)][:1]
    return [", ".join(got), ", ".join(spent), end_line(view), *error, *stuck]


def end_line(view: View) -> str:
    """The estimated end of all runs as text."""
    if view.ends_at is None or view.end is None:
        return "end not known yet"
    when = f"{clock(view.ends_at, view.at)}, in {span(view.end.seconds)}"
    waiting = f", after {counted(view.end.waits, 'wait')} for permits" if view.end.waits else ""
    return f"ends not before {when}: more jobs are being found" if view.is_growing else f"ends about {when}{waiting}"


def _kinds(view: View) -> Table:
    """One line per kind, summed over all users."""
    totals: defaultdict[str, list[int]] = defaultdict(lambda: [0] * 4)
    for one in (one for kinds in view.kinds.values() for one in kinds):
        sums = totals[one.kind]
        for index, value in enumerate((one.ended, one.total, one.failed, one.retrying)):
            sums[index] += value
    table = Table.grid(padding=(0, 2))
    known = kind_names()
    for kind in [*(kind for kind in known if kind in totals), *(kind for kind in totals if kind not in known)]:
        ended, total, failed, retrying = totals[kind]
        table.add_row(
            kind_names().get(kind, kind),
            _bar(ended, total),
            f"{number(ended)}/{number(total)}",
            Text(_failures_text(failed, retrying), style="red" if failed else ""),
        )
    return table


def _user(run: Run, view: View) -> tuple[RenderableType, ...]:
    kinds, resources = view.kinds.get(run.id, ()), view.resources.get(run.id)
    return (
        Text(run.login),
        _bar(run.ended_jobs, run.total_jobs, _SHORT_BAR),
        *([] if view.unit is None else ["" if resources is None else f"{resources.ended}/{resources.total}"]),
        f"{number(run.ended_jobs)}/{number(run.total_jobs)}",
        number(run.documents),
        Text(", ".join(_left(run, kinds)), style=_STYLES.get(run.status, "")),
    )


def _left(run: Run, kinds: Iterable[KindProgress]) -> list[str]:
    """The unfinished jobs of a user by kind; if there are none, the state of the run."""
    failed = [f"{number(run.failed_jobs)} failed"] if run.failed_jobs else []
    unfinished = {one.kind: one for one in kinds if one.ended < one.total}
    if run.status in ACTIVE_RUNS and unfinished:
        ordered = sorted(unfinished.items(), key=_rank)
        return [*failed, *(f"{kind_names().get(kind, kind)} {one.ended}/{one.total}" for kind, one in ordered)]
    return [_WORDS.get(run.status, str(run.status)), *failed]


def _rank(item: tuple[str, KindProgress]) -> int:
    known = list(kind_names())
    return known.index(item[0]) if item[0] in known else len(known)


def _bar(done: int, total: int, width: int = _BAR) -> ProgressBar:
    return ProgressBar(total=max(1, total), completed=done, width=width)


def _failures_text(failed: int, retrying: int) -> str:
    texts = [f"{number(failed)} failed"] if failed else []
    return ", ".join([*texts, f"{number(retrying)} to be retried"] if retrying else texts)


def _permits(permits: Sequence[Permits], view: View) -> list[Text]:
    lines = [
        Text(f"{permit_label(one)}: {permit_text(one, view.at)}, {number(one.in_flight)} in flight")
        for one in permits[:_MOST_PERMITS]
    ]
    if len(permits) > _MOST_PERMITS:
        lines.append(Text(f"… and {number(len(permits) - _MOST_PERMITS)} more", style="dim"))
    return lines


def _waits(view: View) -> list[Text]:
    return [Text(f"waits: {why}", style="yellow") for why in wait_reasons(view.permits, view.at)[:_MOST_WAITS]]


_LINE_EVERY_S = 5.0


class ProgressOutput(Protocol):
    """Shows the plan and the progress of a collection."""

    refresh_after_s: float
    """Longest time between two views if nothing changes."""

    def show_plan(self, plan: CollectionPlan) -> None:
        """Show the plan before the collection starts."""
        ...

    def show(self, view: View) -> None:
        """Show the current progress; may be called often."""
        ...

    def say(self, text: str) -> None:
        """Print a message at once."""
        ...


class SilentOutput:
    """Prints only messages, neither plan nor progress."""

    refresh_after_s = 5.0

    def __init__(self, console: Console) -> None:
        self._console = console

    def show_plan(self, plan: CollectionPlan) -> None:
        """Print nothing, because the screen is quiet."""

    def show(self, view: View) -> None:
        """Print nothing, because the screen is quiet."""

    def say(self, text: str) -> None:
        """Print a message at once, without control codes unless the output is a terminal."""
        self._console.print(text, markup=False, soft_wrap=True)


class LineOutput(SilentOutput):
    """Prints a plain line every few seconds if something changed."""

    refresh_after_s = 1.0

    def __init__(self, console: Console) -> None:
        super().__init__(console)
        self._printed, self._printed_at, self._was_alarmed = "", 0.0, False

    def show_plan(self, plan: CollectionPlan) -> None:
        """Print the plan, one fact per line."""
        print_lines(self._console, plan_lines(plan))

    def show(self, view: View) -> None:
        """Print a line every few seconds if something changed; a new wait or problem is printed at once."""
        got, spent, end, *error = headline(view)
        alarms = [*wait_reasons(view.permits, view.at), *error]
        is_new_alarm, self._was_alarmed = bool(alarms) and not self._was_alarmed, bool(alarms)
        if self._printed and not is_new_alarm and monotonic() - self._printed_at < _LINE_EVERY_S:
            return
        news = "; ".join([got, *alarms])
        if news != self._printed:
            self._printed, self._printed_at = news, monotonic()
            self.say(f"{clock(view.at, view.at)}  {'; '.join([got, spent, end, *alarms])}")


class TerminalOutput(LineOutput):
    """Redraws a live display in place."""

    def __init__(self, console: Console, live: Live) -> None:
        super().__init__(console)
        self._live, self._live_view = live, ProgressView()

    def show(self, view: View) -> None:
        """Redraw the live display."""
        self._live.update(self._live_view.draw(view, self._console.size.height), refresh=True)


@contextmanager
def open_screen(console: Console, log: LogSettings, *, quiet: bool) -> Generator[ProgressOutput]:
    """Open the screen that suits the console. While a live display is open, log lines are printed above it."""
    if quiet or not console.is_terminal:
        yield SilentOutput(console) if quiet else LineOutput(console)
        return
    with Live(console=console, auto_refresh=False, transient=True) as live:
        configure_log(log, stream=sys.stderr)  # the live display replaces it and prints lines above itself
        try:
            yield TerminalOutput(console, live)
        finally:
            live.update("", refresh=True)
    configure_log(log)
