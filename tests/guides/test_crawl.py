"""The guide to crawls names tests as proof: there are such tests. What it shows is run in tests/cli and tests/http."""

import re

from tests.docs.pages import ROOT, prose_of, section_of, table_rows

GUIDE = ROOT / "docs" / "guides" / "crawl.md"
PROOF = "What an audit found elsewhere, and what proves that it is not so here"
FINDINGS, DEVICES = 8, 5


def test_every_finding_and_every_device_names_a_test_that_there_is():
    tests = {
        name
        for file in (ROOT / "tests").rglob("test_*.py")
        for name in re.findall(r"^(?:async )?def (test_\w+)\(", file.read_text(), re.MULTILINE)
    }
    rows = [re.findall(r"`(test_\w+)`", row[-1]) for row in table_rows(section_of(GUIDE, PROOF))]

    assert len(rows) == FINDINGS + DEVICES
    assert all(rows), "each names one"
    assert set(re.findall(r"`(test_\w+)`", prose_of(GUIDE))) - tests == set()


def test_the_breakdown_table_names_messages_that_are_told():
    """A message that was reworded is reworded in the guide, too."""
    files = [
        *(ROOT / "src" / "tidegate" / "cli").glob("crawl*.py"),
        *(ROOT / "src" / "tidegate" / "crawl").glob("*.py"),
    ]
    told = " ".join("\n".join(file.read_text() for file in files).split())
    for words in (
        "robots.txt cannot be read: ",
        "Nothing was read: robots.txt forbids every search",
        "nobody can call for",
        "all identities are disabled",
        "identities rest",
        "is left alone until",
    ):
        assert words in told, words
