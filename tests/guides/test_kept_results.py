"""A part that is measured alone replaces its section of the results, and interference is marked where it is large."""

from pathlib import Path

import pytest
from bench import figures
from bench.figures import Figure, Section, keep
from bench.interference import compared

RESULTS = "# Results\n\n## Engine\n\nfirst\n\n## Idle\n\nold\n\n## Soak\n\nlast\n"


@pytest.fixture
def results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "RESULTS.md"
    path.write_text(RESULTS)
    monkeypatch.setattr(figures, "RESULTS", path)
    return path


def test_a_section_is_replaced_in_its_place_and_all_others_stay(results: Path):
    keep(Section("Idle", [Figure("CPU", "1 %")]))

    text = results.read_text()
    assert text.startswith("# Results\n\n## Engine\n\nfirst\n\n## Idle\n\nMeasured ")
    assert text.endswith("| CPU | 1 % |  |  |\n\n## Soak\n\nlast\n")


def test_a_new_section_is_added_at_the_end(results: Path):
    keep(Section("Idle again", [Figure("CPU", "1 %")]))

    assert results.read_text().startswith(f"{RESULTS}\n## Idle again\n\nMeasured ")


@pytest.mark.parametrize(
    ("beside", "is_small"),
    [
        ([0.01, 0.012, 9.0], True),  # one is long, the median is not
        ([0.05, 0.055, 0.06], True),  # several times, but few milliseconds
        ([0.05, 0.2, 0.3], False),
        ([], False),
    ],
)
def test_interference_is_large_if_the_median_is_several_times_and_much_longer(beside: list[float], is_small: bool):
    assert compared("slow", "read", [0.01, 0.01, 0.02], beside).met is is_small
