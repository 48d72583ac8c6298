"""Markdown that GitHub and the site read alike."""

import re
from collections.abc import Iterable, Sequence

MADE = "Made from the code by `make reference`; a test keeps it current."


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Its lines, and an empty one behind them; nothing where there are no rows."""
    lines = [_row(row) for row in rows]
    return [_row(head), "|" + " --- |" * len(head), *lines, ""] if lines else []


def code(text: object) -> str:
    """As code."""
    return f"`{text}`"


def prose(text: str) -> str:
    """Words on one line, in which nothing outside of `code` is taken for HTML."""
    pieces = " ".join(text.split()).split("`")
    return "`".join(piece if n % 2 else piece.replace("<", "&lt;") for n, piece in enumerate(pieces))


def anchor(heading: str) -> str:
    """What links call a heading, on GitHub and on the site."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def page(lines: Iterable[str]) -> str:
    """The whole page, with one line end at its end and no two empty lines together."""
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).rstrip("\n") + "\n"


def _row(cells: Sequence[str]) -> str:
    # A bar ends a cell, also in the middle of code.
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"
