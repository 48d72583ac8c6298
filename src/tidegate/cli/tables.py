"""Prints tables: as wide as the terminal, or as wide as necessary if the output is a pipe or file."""

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
