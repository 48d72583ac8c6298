"""Tests of the prose check, and of the terms that the glossary lists as gone."""

import pytest
from tools.prose import (
    GLOSSARY,
    ROOT,
    brief_docstrings,
    files,
    find_terms,
    findings_of,
    pattern_of,
    prose_of,
    retired_terms,
    risen,
)

TERMS = retired_terms(GLOSSARY.read_text())


def test_retired_terms_marked_done_do_not_occur():
    done = pattern_of([term for term, status in TERMS.items() if status == "done"])
    checked = [path for path in files() if path not in (GLOSSARY, ROOT / "CHANGELOG.md")]

    assert done is not None
    assert len(checked) > 500, "the search finds too few files"
    found = [f"{path}:{each.line}: {each.text}" for path in checked for each in find_terms(path.read_text(), done)]
    assert found == []


@pytest.mark.parametrize(
    ("line", "is_found"),
    [
        ("the doorbell rings", True),
        ("class RelayDoorbell:", True),
        ("DOORBELL_KEY", True),
        ("self._doorbell_of", True),
        ("doorbells", False),
        ("let it out", False),
        ("gate.let_out", True),
        ("letOut", True),
    ],
)
def test_a_retired_term_is_found_in_prose_and_in_identifiers(line: str, is_found: bool):
    assert bool(list(find_terms(line, pattern_of(["doorbell", "let out"])))) == is_found


def rules_of(name: str, text: str) -> list[tuple[str, int]]:
    path = ROOT / name
    return [(each.rule, each.line) for each in findings_of(path, text, list(prose_of(path, text)), {})]


def test_pronouns_are_found_in_docstrings_comments_and_messages_but_not_in_code():
    code = '"""He waits."""\n\nhis = 1  # his own\nlog.info("the user and her place", name="his")\n'

    assert sorted(rules_of("src/tidegate/core/example.py", code)) == [("pronouns", 1), ("pronouns", 3), ("pronouns", 4)]


def test_prose_of_a_page_excludes_code_and_keeps_line_numbers():
    page = "# Title\n\n```sh\nwhoever\n```\n\nNobody uses `--anybody`.\n"

    assert rules_of("docs/example.md", page) == [("nobody", 7)]


def test_prose_of_scripts_and_pages_is_found():
    assert rules_of("src/tidegate/example.lua", "-- Somebody waits.\nlocal nobody = 1\n") == [("nobody", 1)]
    assert rules_of("src/tidegate/example.js", 'let nobody = 1 // whoever\nsay("who waits")\n') == [
        ("nobody", 1),
        ("who", 2),
    ]
    assert rules_of("src/tidegate/example.html", "<p class='nobody'>\nNobody\n</p>") == [("nobody", 2)]


def test_a_docstring_of_three_words_is_reported_for_public_names():
    both = 'class Both:\n    """Both of them."""\n\n    def _own(self):\n        """Own."""\n'
    code = f'{both}\n    def run(self):\n        """Run all pending jobs."""\n'

    assert [each.text for each in brief_docstrings(code)] == ["Both: Both of them."]


def test_a_total_may_fall_or_move_between_packages_but_not_rise():
    stored = {"src: who": {"a": 2, "b": 1}}

    assert risen({"src: who": {"a": 1, "b": 1}}, stored) == []
    assert risen({"src: who": {"c": 3}}, stored) == []
    assert risen({"src: who": {"a": 2, "b": 2}}, stored) == ["src: who: 3 -> 4 (b 1 -> 2)"]
    assert risen({"src: nobody": {"a": 1}}, stored) == ["src: nobody: 0 -> 1 (a 0 -> 1)"]


def test_the_status_of_every_retired_term_is_known():
    table = GLOSSARY.read_text().partition("\n## Retired terms\n")[2]
    rows = [line for line in table.splitlines() if line.startswith("| ") and "---" not in line]

    assert len(rows) - 1 == len(TERMS), "a row has another status than `done` or `open`, or a term is listed twice"
