"""The functions that a profile names are those with the most samples of their own."""

import pytest
from bench.profiles import PROFILES, names_of, top_functions

FRAMES = [
    ("all", 100, 0, 200),
    ("thread (7): MainThread", 116, 0, 150),
    ("_worker (concurrent/futures/thread.py:81)", 116, 150, 50),
    ("run (loop.py:1)", 132, 0, 150),
    ("read &lt;raw&gt; (codec.py:3)", 148, 0, 60),
    ("read &lt;raw&gt; (codec.py:9)", 148, 60, 30),
    ("write (store.py:5)", 148, 100, 50),
    ("pack (store.py:7)", 164, 120, 10),
]


def flame_graph() -> str:
    frame = (
        "<g><title>{0} ({3} samples, 1.00%)</title>"
        '<rect x="0.0%" y="{1}" width="1.0%" height="15" fill="rgb(1,2,3)" fg:x="{2}" fg:w="{3}"/></g>'
    )
    return "".join(frame.format(*each) for each in FRAMES)


def test_functions_are_ordered_by_samples_that_no_callee_has():
    top = top_functions(flame_graph(), most=3)

    assert [each.name for each in top] == ["read <raw> (codec.py)", "write (store.py)", "run (loop.py)"]
    assert [each.share for each in top] == pytest.approx([90 / 150, 40 / 150, 10 / 150])


def test_a_command_line_without_names_means_all_profiles():
    assert names_of([]) == list(PROFILES)
    assert names_of(["reads"]) == ["reads"]
