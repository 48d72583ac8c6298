"""Prints tables and small text charts.

A table is as wide as the terminal, or as wide as necessary if the output is a pipe or file. Charts are readable without
colour, with ASCII fallbacks.
"""

from collections.abc import Mapping, Sequence
from datetime import date, timedelta

import msgspec
from rich.console import Console
from rich.table import Table

_WIDE = 10_000


def table_console() -> Console:
    """A console with the width of the terminal; without a limit for pipes and files."""
    console = Console(highlight=False)
    return console if console.is_terminal else Console(highlight=False, width=_WIDE)


def print_table(table: Table) -> None:
    """Print a table with one line per row; in a terminal, long cells are wrapped, and nothing is truncated."""
    for column in table.columns:
        column.overflow = "fold"
    table_console().print(table)


_DAYS = ("Mon", "", "Wed", "", "Fri", "", "Sun")
_WEEK = timedelta(weeks=1)


class Glyphs(msgspec.Struct, frozen=True):
    """The characters of charts; the first of each is for zero."""

    heights: str
    shades: str
    bar: str

    @classmethod
    def of(cls, encoding: str) -> "Glyphs":
        """The best characters that an encoding supports."""
        return BLOCKS if encoding.lower().replace("-", "").startswith("utf") else PLAIN


BLOCKS = Glyphs("·▁▂▃▄▅▆▇█", "·░▒▓█", "█")
PLAIN = Glyphs(".,-~+=*%#", ".:+%#", "#")


def sparkline(values: Sequence[int], glyphs: Glyphs = BLOCKS, *, most: int | None = None) -> str:
    """One character per value with a proportional height; values above zero are always visible.

    `most` is the value of the highest character, by default the maximum of the values.
    """
    return _drawn(values, glyphs.heights, max(values, default=0) if most is None else most)


def bar(value: int, most: int, width: int, glyphs: Glyphs = BLOCKS) -> str:
    """A bar with a proportional length, the full width for `most`; values above zero are always visible."""
    return glyphs.bar * (max(1, round(value * width / most)) if value else 0)


def heat(counts: Mapping[date, int], today: date, weeks: int, glyphs: Glyphs = BLOCKS) -> list[str]:
    """A calendar: a line with months, then one line per weekday; one column per week, up to the current week."""
    monday = today - timedelta(days=today.weekday())
    mondays = [monday - _WEEK * back for back in reversed(range(weeks))]
    most = max(counts.values(), default=0)
    lines = [f"    {_months(mondays)}".rstrip()]
    for number, name in enumerate(_DAYS):
        days = [first + timedelta(days=number) for first in mondays]
        past = [counts.get(day, 0) for day in days if day <= today]
        lines.append(f"{name:<3} {_drawn(past, glyphs.shades, most)}")
    return lines


def _drawn(values: Sequence[int], ramp: str, most: int) -> str:
    steps = len(ramp) - 1
    return "".join(ramp[-(-value * steps // most)] if value else ramp[0] for value in values)


def _months(mondays: Sequence[date]) -> str:
    """The names of months above their first week, if there is space."""
    starts = [n for n, monday in enumerate(mondays) if n == 0 or monday.month != mondays[n - 1].month]
    line = ""
    for start, following in zip(starts, [*starts[1:], len(mondays) + 1], strict=True):
        if following - start >= 4:
            line = f"{line:<{start}}{mondays[start]:%b}"
    return line
