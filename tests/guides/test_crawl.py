"""The guide to crawls names tests as proof: there are such tests. What it shows is run in tests/cli and tests/http."""

import re

import pytest

from tests.docs.pages import ROOT, section_of, table_rows

GUIDE = ROOT / "docs" / "guides" / "crawl.md"
PROOF = section_of(GUIDE, "Known failures of such pipelines, and the tests against them")
FINDINGS, DEVICES = 8, 5
NAMED = re.findall(r"`(tests/[\w/]+\.py)::(test_\w+)`", PROOF)


def test_every_finding_and_every_mechanism_names_a_test():
    rows = [row[-1] for row in table_rows(PROOF)]

    assert len(rows) == FINDINGS + DEVICES
    assert [row for row in rows if "::test_" not in row] == []
    assert len(NAMED) == PROOF.count("::test_")


@pytest.mark.parametrize(("file", "name"), NAMED)
def test_the_named_test_exists(file: str, name: str):
    assert re.search(rf"^(?:async )?def {name}\(", (ROOT / file).read_text(), re.MULTILINE)


@pytest.mark.parametrize(
    "words",
    [
        "robots.txt cannot be read: ",
        "Nothing was read: robots.txt forbids every search",
        "there is no identity for ",
        "all identities are disabled",
        "identities are paused",
        "is paused until",
    ],
)
def test_the_output_described_by_the_guide_is_printed(words: str):
    """A message that is reworded is reworded in the guide, too."""
    folders = (ROOT / "src" / "tidegate" / "cli", ROOT / "src" / "tidegate" / "systems" / "crawl")
    told = "".join(file.read_text() for folder in folders for file in folder.rglob("*.py"))

    assert words in told
    assert words.strip().removesuffix(":") in section_of(GUIDE, "When things break").replace("…: ", "")
