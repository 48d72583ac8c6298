"""A small rush with everything that the large one has: `python -m chaos.rush`."""

from pathlib import Path

import pytest
from chaos.rush import RushPlan, conduct
from chaos.rush_audit import Books, Row, Verdict, of_answers, of_attempts, of_coupons, of_points
from chaos.rush_process import COUPONS, POINTS, Told

SMALL = RushPlan(
    attempts=3000,
    users=1000,
    stock=400,
    instances=2,
    crowds=1,
    kill_every_s=0.2,
    lease_s=1.0,
    database="sqlite",
    seed=3,
)


@pytest.mark.crash
@pytest.mark.timeout(600)  # it gives up by itself, where nothing moves any more
async def test_the_stock_is_issued_once_under_load_although_instances_are_killed(tmp_path: Path):
    verdict = await conduct(SMALL, tmp_path)

    assert verdict.breaches == []
    assert verdict.answers == {"ACCEPTED": 400, "DUPLICATE": 800, "SOLD_OUT": 1800}
    assert verdict.issued == 400
    assert verdict.killed > 0


def test_the_audit_detects_each_kind_of_violation():
    """A proof that nothing can fail is none."""
    good = [Row("a", 1, "issued", "x", 0), Row("b", 2, "issued", "y", 0)]
    verdict = Verdict(attempts=2, users=2, stock=2)

    def of(*rows: Row, counted: int = 2) -> int:
        return len(list(of_coupons(Books({COUPONS: counted}, {COUPONS: list(rows)}, {}), verdict)))

    assert of(*good) == 0
    assert of(*good[:1]) > 0
    assert of(*good, Row("c", 3, "issued", "z", 0)) > 0, "one too many"
    assert of(good[0], Row("b", 3, "issued", "y", 0)) > 0, "not the first in line"
    assert of(good[0], Row("a", 2, "issued", "y", 0)) > 0, "one user with two"
    assert of(good[0], Row("b", 2, "issued", "x", 0)) > 0, "the same code"
    assert of(good[0], Row("b", 2, "sold_out", None, 0)) > 0
    assert of(*good, counted=3) > 0

    told = [Told(0, COUPONS, "a", "ACCEPTED", 1), Told(1, COUPONS, "b", "ACCEPTED", 2)]
    assert list(of_attempts(told, 2)) == list(of_answers(COUPONS, good, told)) == []
    assert list(of_attempts(told[:1], 2)) != []
    assert list(of_answers(COUPONS, good, [*told, Told(2, COUPONS, "a", "ACCEPTED", 1)])) != []
    assert list(of_answers(COUPONS, good, [told[0], Told(1, COUPONS, "b", "ACCEPTED", 1)])) != []
    assert list(of_answers(COUPONS, good[:1], told)) != [], "let in, and nothing came of it"

    pointed, entered = [Row("a", 1, "issued", None, 7)], [Told(0, POINTS, "a", "ACCEPTED", 1)]
    assert list(of_points(Books({POINTS: 1}, {POINTS: pointed}, {"a": 7}), entered)) == []
    assert list(of_points(Books({POINTS: 1}, {POINTS: pointed}, {"a": 14}), entered)) != []
    assert list(of_points(Books({POINTS: 1}, {POINTS: []}, {}), entered)) != []
