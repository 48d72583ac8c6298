"""The guide tells which tests show a scenario in small; each of them is there."""

import re

from scenarios.__main__ import ALL

from tests.docs.pages import ROOT, section_of, table_rows
from tests.faults.test_table import names_in

GUIDE = ROOT / "docs" / "guides" / "scenarios.md"


def test_every_scenario_is_in_the_guide_with_existing_tests():
    rows = table_rows(section_of(GUIDE, "The scenarios"))

    assert [int(row[0]) for row in rows] == [each.number for each in ALL]
    for test in (test for row in rows for test in re.findall(r"`(tests/[^`]+)`", row[4])):
        path, _, name = test.partition("::")
        assert (ROOT / path).exists(), test
        assert name in names_in(ROOT / path), test
