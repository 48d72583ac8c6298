"""The verified result of a campaign, as a table or as JSON."""

from collections.abc import Sequence

import msgspec
from sqlalchemy import func, select

from chaos.deployment import Site
from chaos.figures import wrong_figures
from tidegate.engine.lifecycle import JobState, RunState
from tidegate.engine.tables import collection_runs, page_jobs
from tidegate.storage.sql import Transaction
from tidegate_simulators.github import KINDS

_EXPECTED_FAILURES = ("403: ", "404: ", "451: ")
"""Repositories that GitHub shows and does not give."""


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that is worth knowing."""

    name: str
    took_s: float
    kills: int
    losses: list[str]
    runs: int
    runs_completed: int
    jobs: int
    documents: int
    calls: int
    calls_needed: int
    spent: int
    """The quota that was spent; answers 304 spend nothing."""
    refused: int
    limits_broken: dict[str, int]
    problems: list[str]

    @property
    def is_well(self) -> bool:
        """Whether every guarantee was kept."""
        return not self.problems

    @property
    def beyond_need(self) -> int:
        """Calls beyond those of a perfect collector without faults."""
        return self.spent - self.calls_needed

    def rows(self) -> list[tuple[str, str]]:
        """For people."""
        per_kill = f", {self.beyond_need / self.kills:.1f} for each worker killed" if self.kills else ""
        return [
            ("campaign", self.name),
            ("took", f"{self.took_s:.0f} s"),
            ("workers killed with -9", f"{self.kills}"),
            ("servers lost", "; ".join(self.losses) or "none"),
            ("runs completed", f"{self.runs_completed} of {self.runs}, each ended once"),
            ("jobs", f"{self.jobs:,}"),
            ("documents compared", f"{self.documents:,}, and the statistics with a slow computation"),
            (
                "calls spent",
                f"{self.spent:,}; needed {self.calls_needed:,}; beyond need {self.beyond_need:,}{per_kill}",
            ),
            ("refused by a limit", f"{self.refused}"),
            ("limits broken", f"{sum(self.limits_broken.values())}"),
            ("verdict", "all is well" if self.is_well else f"{len(self.problems)} problems"),
            *(("problem", problem) for problem in self.problems),
        ]

    def table(self) -> str:
        """The rows, side by side."""
        width = max(len(name) for name, _ in self.rows())
        return "\n".join(f"{name:<{width}}  {value}" for name, value in self.rows())


async def examine(
    site: Site,
    run_ids: Sequence[int],
    *,
    name: str,
    took_s: float,
    kills: int,
    losses: Sequence[str],
    exit_codes: Sequence[int],
) -> Outcome:
    """Compare, recount, and ask the simulator."""
    report = site.github.report(None, KINDS)
    compared = await site.comparison()
    states = await site.parts.database.read(_states, run_ids)
    problems = [*compared.differences, *await site.disagreements(run_ids)]
    problems += [f"the rule {rule} was broken {times} times" for rule, times in report.violations.items()]
    problems += [f"a worker that was asked to stop ended with {code}" for code in exit_codes if code]
    problems += [f"{count} runs are {state}" for state, count in states.items() if state != RunState.COMPLETED]
    problems += await site.parts.database.read(_failures, run_ids)
    accounts = [site.github.truth(login).profile["id"] for login in site.logins]
    problems += await wrong_figures(site.parts.database, site.documents, site.logins, accounts)
    assert report.needed is not None
    return Outcome(
        name=name,
        took_s=took_s,
        kills=kills,
        losses=list(losses),
        runs=len(run_ids),
        runs_completed=states.get(RunState.COMPLETED, 0),
        jobs=await site.parts.database.read(_jobs, run_ids),
        documents=compared.documents,
        calls=report.calls,
        calls_needed=report.needed.total,
        spent=sum(report.spent.values()),
        refused=report.refused,
        limits_broken=report.violations,
        problems=problems,
    )


def _states(tx: Transaction, run_ids: Sequence[int]) -> dict[str, int]:
    run = collection_runs.c
    found = tx.execute(select(run.status, func.count()).where(run.id.in_(run_ids)).group_by(run.status))
    return {row[0]: row[1] for row in found}


def _jobs(tx: Transaction, run_ids: Sequence[int]) -> int:
    counted = select(func.count()).select_from(page_jobs).where(page_jobs.c.run_id.in_(run_ids))
    return tx.execute(counted).scalar_one()


def _failures(tx: Transaction, run_ids: Sequence[int]) -> list[str]:
    """Jobs that failed though the upstream would have given."""
    job = page_jobs.c
    failed = select(job.job_type, job.resource_key, job.last_error).where(
        job.run_id.in_(run_ids), job.status == JobState.FAILED
    )
    return [
        f"{row.job_type} of {row.resource_key} failed: {row.last_error}"
        for row in tx.execute(failed)
        if not (row.last_error or "").startswith(_EXPECTED_FAILURES)
    ]
