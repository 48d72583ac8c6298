"""The tables of the sizing guide follow from the results, and predictions from the measured cells."""

import pytest
from bench import sizing
from bench.figures import RESULTS
from bench.scaling import Cell, CostModel, shard_names


def test_the_tables_of_the_page_are_those_that_the_results_give():
    page = sizing.PAGE.read_text()

    assert sizing.computed(RESULTS.read_text()) in page, "run: .venv/bin/python -m bench.sizing"


def test_a_changed_unit_cost_changes_the_tables():
    results = RESULTS.read_text()
    row = next(line for line in results.splitlines() if line.startswith("| unit cost of a job: disk |"))

    changed = sizing.computed(results.replace(row, "| unit cost of a job: disk | 12,345 bytes |  |  |"))

    assert "× 12,345 bytes" in changed
    assert changed != sizing.computed(results)


def test_a_row_that_is_missing_from_the_results_is_named():
    with pytest.raises(ValueError, match="Scaling: unit cost of a job: WAL"):
        sizing.read_costs(RESULTS.read_text().replace("unit cost of a job: WAL", "something else"))


def cell(workers: int, shards: int, worker_us: float) -> Cell:
    return Cell(
        workers=workers,
        shards=shards,
        rate=1000.0,
        worker_us=worker_us,
        valkey_us=(30.0, 10.0, 0.0),
        sql_us=60.0,
        others=0.0,
        idle=0.0,
        wal_bytes=0.0,
        disk_bytes=0.0,
        valkey_bytes=0.0,
        network_bytes=0.0,
    )


CELLS = [cell(1, 1, 100.0), cell(2, 1, 1e9), cell(3, 1, 300.0), cell(1, 4, 100.0), cell(3, 4, 300.0)]


def test_costs_are_interpolated_between_the_corners():
    costs = CostModel.of(CELLS)

    assert costs.cost_us(1, 1, lambda each: each.worker_us) == pytest.approx(100)
    assert costs.cost_us(2, 2, lambda each: each.worker_us) == pytest.approx(200)
    assert costs.cost_us(3, 4, lambda each: each.worker_us) == pytest.approx(300)


def test_the_rate_is_that_of_the_resource_that_is_used_up_first():
    costs = CostModel.of(CELLS)

    assert costs.rate(1, 1, cores=1.0) == pytest.approx(1e6 / 200)  # all cores
    assert costs.rate(1, 1, cores=100.0) == pytest.approx(1e6 / 100)  # the worker
    assert CostModel.of([cell(1, 1, 10.0)]).rate(1, 1, cores=100.0) == pytest.approx(1e6 / 40)  # the node


def test_shards_lie_on_the_nodes_in_turns():
    assert len(set(shard_names(4))) == 4
    assert shard_names(2) == shard_names(4)[:2]
