"""The documentation as data."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "bench").rglob("*.md")])

_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_HEADING = re.compile(r"^#{1,6} +(.+)$", re.MULTILINE)


@dataclass(frozen=True)
class Block:
    """A fenced block: its language, its text, and where it stands."""

    page: Path
    line: int
    language: str
    text: str

    @property
    def place(self) -> str:
        """What a test calls it."""
        return f"{name_of(self.page)}:{self.line}"


def name_of(page: Path) -> str:
    """The path of a page from the top of the repository."""
    return str(page.relative_to(ROOT))


def blocks_of(page: Path) -> list[Block]:
    """Its fenced blocks, in their order."""
    text = page.read_text()
    return [Block(page, text.count("\n", 0, found.start()) + 1, found[1], found[2]) for found in _FENCE.finditer(text)]


def all_blocks(language: str) -> list[Block]:
    """The blocks of one language, of all pages."""
    return [block for page in PAGES for block in blocks_of(page) if block.language == language]


def prose_of(page: Path) -> str:
    """The page without its fenced blocks."""
    return _FENCE.sub("", page.read_text())


def anchors_of(page: Path) -> set[str]:
    """The names by which links can point at its headings."""
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in _HEADING.findall(prose_of(page))}


def section_of(page: Path, heading: str) -> str:
    """What stands between a heading of the second level and the next one."""
    found = re.search(rf"^## {re.escape(heading)}$(.*?)(?=^## |\Z)", page.read_text(), re.MULTILINE | re.DOTALL)
    assert found, f"{name_of(page)} has no section {heading!r}"
    return found[1]


def table_rows(text: str) -> Iterator[list[str]]:
    """The cells of every row of every table, heads and rulers left out; `\\|` is a bar inside a cell."""
    previous = ""
    for line in text.splitlines():
        is_ruler = bool(re.fullmatch(r"\|( *:?-+:? *\|)+", line))
        if line.startswith("|") and not is_ruler and previous.startswith("|"):
            yield [cell.strip() for cell in re.split(r"(?<!\\)\|", line.strip("|"))]
        previous = line
