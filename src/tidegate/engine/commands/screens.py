"""Where progress is shown: a picture in a terminal, lines elsewhere, or nowhere."""

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
from tidegate.engine.commands.permits import waits
from tidegate.engine.commands.picture import ProgressView, headline
from tidegate.engine.commands.plan import CollectionPlan
from tidegate.engine.commands.plan_text import plan_lines
from tidegate.engine.commands.run_text import print_lines
from tidegate.engine.commands.watching import View

_LINE_EVERY_S = 5.0


class ProgressOutput(Protocol):
    """Somebody looks at it, or nobody does."""

    patience_s: float
    """How long it can do without a new view, where nothing moved."""

    def show_plan(self, plan: CollectionPlan) -> None:
        """Tell what is going to happen."""
        ...

    def show(self, view: View) -> None:
        """Tell how things stand; may be called often."""
        ...

    def say(self, text: str) -> None:
        """Tell something at once."""
        ...


class SilentOutput:
    """Tells only what cannot wait."""

    patience_s = 5.0

    def __init__(self, console: Console) -> None:
        self._console = console

    def show_plan(self, plan: CollectionPlan) -> None:
        """Nobody wants to know."""

    def show(self, view: View) -> None:
        """Nobody wants to know."""

    def say(self, text: str) -> None:
        """Tell at once, without control codes unless it is a terminal."""
        self._console.print(text, markup=False, soft_wrap=True)


class LineOutput(SilentOutput):
    """A plain line now and then, when something changed."""

    patience_s = 1.0

    def __init__(self, console: Console) -> None:
        super().__init__(console)
        self._told, self._told_at, self._was_alarmed = "", 0.0, False

    def show_plan(self, plan: CollectionPlan) -> None:
        """One fact on each line."""
        print_lines(self._console, plan_lines(plan))

    def show(self, view: View) -> None:
        """A line every few seconds when there is news; that something has to wait is told at once."""
        got, spent, end, *trouble = headline(view)
        alarms = [*waits(view.permits, view.at), *trouble]
        is_new_alarm, self._was_alarmed = bool(alarms) and not self._was_alarmed, bool(alarms)
        if self._told and not is_new_alarm and monotonic() - self._told_at < _LINE_EVERY_S:
            return
        news = "; ".join([got, *alarms])
        if news != self._told:
            self._told, self._told_at = news, monotonic()
            self.say(f"{clock(view.at, view.at)}  {'; '.join([got, spent, end, *alarms])}")


class TerminalOutput(LineOutput):
    """A picture that is drawn again and again in the same place."""

    def __init__(self, console: Console, live: Live) -> None:
        super().__init__(console)
        self._live, self._picture = live, ProgressView()

    def show(self, view: View) -> None:
        """Draw."""
        self._live.update(self._picture.draw(view, self._console.size.height), refresh=True)


@contextmanager
def open_screen(console: Console, log: LogSettings, *, quiet: bool) -> Generator[ProgressOutput]:
    """The screen that suits the console, for the length of a block. Log lines stay out of the picture's way."""
    if quiet or not console.is_terminal:
        yield SilentOutput(console) if quiet else LineOutput(console)
        return
    with Live(console=console, auto_refresh=False, transient=True) as live:
        configure_log(log, stream=sys.stderr)  # which is the picture's own, as long as there is one
        try:
            yield TerminalOutput(console, live)
        finally:
            live.update("", refresh=True)
    configure_log(log)
