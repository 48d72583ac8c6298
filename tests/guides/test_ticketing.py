"""The guide to the ticket shop shows the code that runs."""

import pytest

from tests.docs.pages import ROOT, Block, blocks_of

GUIDE = ROOT / "docs" / "guides" / "ticketing.md"
CODE = "\n".join(file.read_text() for file in sorted((ROOT / "examples" / "ticketing").glob("*.py")))
SHOWN = [block for block in blocks_of(GUIDE) if block.language == "py"]


@pytest.mark.parametrize("block", SHOWN, ids=lambda block: block.place)
def test_the_code_of_the_guide_equals_the_example(block: Block):
    assert block.text in CODE


def test_the_guide_contains_code():
    assert len(SHOWN) >= 5
