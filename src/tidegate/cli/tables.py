"""Tables on paper of the right width: that of a terminal, and elsewhere as wide as the lines are."""

from rich.console import Console
from rich.table import Table

_WIDE = 10_000


def table_console() -> Console:
    """As wide as the terminal; what is read by programs, or kept, is as wide as it has to be: a pipe has no width."""
    console = Console(highlight=False)
    return console if console.is_terminal else Console(highlight=False, width=_WIDE)


def print_table(table: Table) -> None:
    """One line for each row; in a terminal what is too long goes on below itself, and nothing is cut off."""
    for column in table.columns:
        column.overflow = "fold"
    table_console().print(table)
