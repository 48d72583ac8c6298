"""Links lead somewhere, and the index is whole."""

import re
from pathlib import Path

import pytest

from tests.docs.pages import PAGES, ROOT, anchors_of, name_of, prose_of

DECISIONS = ROOT / "docs" / "decisions"


def links_of(page: Path) -> list[str]:
    """Its links to places in the repository."""
    targets: list[str] = re.findall(r"\]\(([^)\s]+)\)", prose_of(page))
    return [target for target in targets if not re.match(r"[a-z]+:", target)]


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_link_has_a_target(page: Path):
    broken: list[str] = []
    for link in links_of(page):
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if not target.exists() or (anchor and anchor not in anchors_of(target)):
            broken.append(link)

    assert broken == []


def test_every_page_is_linked_directly_or_indirectly_from_the_readme():
    reached, frontier = set[Path](), [ROOT / "README.md"]
    while frontier:
        page = frontier.pop()
        if page not in reached and page.suffix == ".md" and page.exists():
            reached.add(page)
            frontier += [(page.parent / link.partition("#")[0]).resolve() for link in links_of(page)]

    # What the benchmark writes is pointed at with its folder.
    unreached = {page for page in PAGES if page not in reached and page.parent.name != "bench"}
    assert sorted(map(name_of, unreached)) == []


def test_decisions_are_numbered_without_gaps_and_titles_match():
    pages = sorted(DECISIONS.glob("*.md"))
    numbers = [page.name[:4] for page in pages]

    assert numbers == [f"{n:04}" for n in range(1, len(pages) + 1)]
    assert [page.name for page in pages if not page.read_text().startswith(f"# {page.name[:4]}: ")] == []


def test_the_index_lists_every_decision_with_its_title():
    index = (ROOT / "docs" / "README.md").read_text()
    titles = {page: page.read_text().splitlines()[0].removeprefix("# ") for page in DECISIONS.glob("*.md")}

    assert [page.name for page, title in titles.items() if f"- [{title}](decisions/{page.name})" not in index] == []
