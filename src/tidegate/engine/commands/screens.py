"""Outputs for progress: a live display in a terminal, plain lines elsewhere, or only messages."""

import sys
from collections.abc import Generator
from contextlib import contextmanager
from time import monotonic
from typing import Protocol

from rich.console import Console
from rich.live import Live

from tidegate.cli.running import configure_log
from tidegate.cli.wording import clock
from tidegate.core.telemetry.logs import LogSettings
from tidegate.engine.commands.live_view import ProgressView, headline
from tidegate.engine.commands.permits import wait_reasons
from tidegate.engine.commands.plan import CollectionPlan
from tidegate.engine.commands.plan_text import plan_lines
from tidegate.engine.commands.run_text import print_lines
from tidegate.engine.commands.watching import View

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
        got, spent, end, *trouble = headline(view)
        alarms = [*wait_reasons(view.permits, view.at), *trouble]
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
