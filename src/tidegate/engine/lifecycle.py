"""The states of runs and jobs, and the moves between them; SQL, documentation and tests derive from them."""

from enum import StrEnum

from tidegate.core.transitions import Moves, check_moves


class RunState(StrEnum):
    """Where a run is."""

    PLANNING = "planning"  # its first jobs are there, and jobs that find others are not done
    RUNNING = "running"  # what there is to do is known, or being found page by page
    FINALIZING = "finalizing"  # every job has ended; statistics are being computed
    COMPLETED = "completed"
    FAILED = "failed"  # it cannot go on
    CANCELED = "canceled"  # on request


class JobState(StrEnum):
    """Where a job is."""

    READY = "ready"  # to be tried again, not before a moment
    ENQUEUED = "enqueued"  # committed, and offered to the gate right after
    RUNNING = "running"  # claimed by a worker
    SUCCEEDED = "succeeded"
    UNAVAILABLE = "unavailable"  # done: the upstream shows the resource to no credential
    FAILED = "failed"  # permanently, or too often
    CANCELED = "canceled"  # with its run


RUN_MOVES: Moves[RunState] = {
    RunState.PLANNING: {RunState.RUNNING, RunState.FINALIZING, RunState.FAILED, RunState.CANCELED},
    RunState.RUNNING: {RunState.FINALIZING, RunState.FAILED, RunState.CANCELED},
    RunState.FINALIZING: {RunState.COMPLETED, RunState.FAILED, RunState.RUNNING},
    RunState.COMPLETED: {RunState.RUNNING},
    RunState.FAILED: {RunState.RUNNING},
    RunState.CANCELED: set(),
}
"""A run that has ended goes on when its failed jobs are retried."""

JOB_MOVES: Moves[JobState] = {
    JobState.READY: {JobState.RUNNING, JobState.FAILED, JobState.CANCELED},
    JobState.ENQUEUED: {JobState.RUNNING, JobState.FAILED, JobState.CANCELED},
    JobState.RUNNING: {
        *(JobState.RUNNING, JobState.READY),
        *(JobState.SUCCEEDED, JobState.UNAVAILABLE, JobState.FAILED, JobState.CANCELED),
    },
    JobState.SUCCEEDED: set(),
    JobState.UNAVAILABLE: set(),
    JobState.FAILED: {JobState.ENQUEUED},
    JobState.CANCELED: set(),
}
"""RUNNING follows RUNNING when a worker takes over from one that died: the fence is raised.

What was never begun fails with its run, when there is no valid credential left to begin it with.
"""

check_moves(RUN_MOVES, RunState, initial=RunState.PLANNING)
check_moves(JOB_MOVES, JobState, initial=JobState.ENQUEUED)

ACTIVE_RUNS = (RunState.PLANNING, RunState.RUNNING, RunState.FINALIZING)
OPEN_RUNS = (RunState.PLANNING, RunState.RUNNING)
"""Runs with jobs that may still be done."""
UNFINISHED_JOBS = (JobState.READY, JobState.ENQUEUED, JobState.RUNNING)
