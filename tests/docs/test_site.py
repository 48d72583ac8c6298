"""The documentation as a site: it is built without a warning, leads nowhere wrong, and asks no other host."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from reference.site_hooks import diagram_as_table
from selectolax.lexbor import LexborHTMLParser, LexborNode

from tests.docs.pages import ROOT, name_of

REQUESTED = {"script": "src", "img": "src", "link": "href", "iframe": "src", "source": "src", "object": "data"}
"""What a browser asks for by itself; a link is followed by people."""
DRAWN_WITH_A_FOREIGN_PROGRAM = ".mermaid, [data-md-component=source]"
"""Where the theme's own script would ask another host."""


@pytest.mark.full
def test_the_site_is_built_without_warnings_and_without_broken_links(tmp_path: Path):
    """A page that the navigation leaves out is a warning, too. One test, since the site is built once for it."""
    built = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", tmp_path / "site"],
        cwd=ROOT,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    told = (built.stdout + built.stderr).splitlines()
    assert [line for line in told if line and not line.startswith("INFO ")] == []
    assert built.returncode == 0

    pages = {file: LexborHTMLParser(file.read_text()) for file in (tmp_path / "site").rglob("*.html")}
    written = list((ROOT / "docs").rglob("*.md"))
    assert [name_of(page) for page in written if not _is_built(page, tmp_path / "site")] == []
    assert sorted(fault for file, page in pages.items() for fault in _requests(file, page)) == []
    assert sorted(_imports(tmp_path / "site")) == []
    assert sorted(fault for file, page in pages.items() for fault in _lost_links(file, page, pages)) == []


def _is_built(page: Path, site: Path) -> bool:
    place = page.relative_to(ROOT / "docs").with_suffix(".html")
    return (site / place.with_name("index.html" if page.name == "README.md" else place.name)).exists()


def _requests(file: Path, page: LexborHTMLParser) -> Iterator[str]:
    for tag, attribute in REQUESTED.items():
        for node in page.css(tag):
            if urlsplit(_value(node, attribute)).netloc:
                yield f"{file.name}: {_value(node, attribute)}"
    if page.css_first(DRAWN_WITH_A_FOREIGN_PROGRAM) is not None:
        yield f"{file.name}: something that the theme draws with a program of another host"


def _imports(site: Path) -> Iterator[str]:
    for file in site.rglob("*.css"):
        text = file.read_text()
        yield from (
            f"{file.name}: {word}" for word in ("url(http", "url(//", '@import"', "@import url") if word in text
        )


def _lost_links(file: Path, page: LexborHTMLParser, pages: dict[Path, LexborHTMLParser]) -> Iterator[str]:
    # The page for what is not there does not know from where it is shown.
    for node in page.css("a[href], img[src]") if file.name != "404.html" else ():
        link = urlsplit(_value(node, "href") or _value(node, "src"))
        if link.scheme or link.netloc:
            continue
        target = (file.parent / unquote(link.path)).resolve() if link.path else file
        target = target / "index.html" if target.is_dir() else target
        if not target.exists() or (link.fragment and not _has(pages.get(target), unquote(link.fragment))):
            yield f"{file.name}: {link.geturl()}"


def _has(page: LexborHTMLParser | None, name: str) -> bool:
    return page is not None and page.css_first(f'[id="{name}"]') is not None


def _value(node: LexborNode, attribute: str) -> str:
    return node.attributes.get(attribute) or ""


def test_a_diagram_has_a_table_as_alternative():
    states = "stateDiagram-v2\n  [*] --> pending: added\n  pending --> [*]\n"
    flow = 'flowchart LR\n  you[your code] -- "rows" --> sql[(SQL)] -. "later" .-> you\n'

    assert diagram_as_table(states).splitlines()[2:] == ["| (begin) | pending | added |", "| pending | (end) |  |"]
    assert diagram_as_table(flow).splitlines()[2:] == ["| your code | SQL | rows |", "| SQL | your code | later |"]
