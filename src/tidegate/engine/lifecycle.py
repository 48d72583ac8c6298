"""The states of runs and jobs and their transitions. SQL, documentation and tests derive from these tables."""

from enum import StrEnum

from tidegate.core.transitions import Moves, check_moves


class RunState(StrEnum):
    """The state of a run."""

    PLANNING = "planning"  # jobs that find other resources are unfinished
    RUNNING = "running"  # all resources are known; further pages may still be found
    FINALIZING = "finalizing"  # every job has ended; statistics are being computed
    COMPLETED = "completed"
    FAILED = "failed"  # it cannot continue
    CANCELED = "canceled"  # on request


class JobState(StrEnum):
    """The state of a job."""

    READY = "ready"  # to be retried after a given time
    ENQUEUED = "enqueued"  # committed, and enqueued in the gate right after
    RUNNING = "running"  # claimed by a worker
    SUCCEEDED = "succeeded"
    UNAVAILABLE = "unavailable"  # ended: the upstream withholds the resource
    FAILED = "failed"  # permanently, or after its last attempt
    CANCELED = "canceled"  # with its run


RUN_MOVES: Moves[RunState] = {
    RunState.PLANNING: {RunState.RUNNING, RunState.FINALIZING, RunState.FAILED, RunState.CANCELED},
    RunState.RUNNING: {RunState.FINALIZING, RunState.FAILED, RunState.CANCELED},
    RunState.FINALIZING: {RunState.COMPLETED, RunState.FAILED, RunState.RUNNING},
    RunState.COMPLETED: {RunState.RUNNING},
    RunState.FAILED: {RunState.RUNNING},
    RunState.CANCELED: set(),
}
"""An ended run continues when its failed jobs are retried."""

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
"""RUNNING follows RUNNING when a worker takes over the job of a dead one; the fencing token is raised.

Jobs that were never started fail with their run if their pool has no valid credential left.
"""

check_moves(RUN_MOVES, RunState, initial=RunState.PLANNING)
check_moves(JOB_MOVES, JobState, initial=JobState.ENQUEUED)

ACTIVE_RUNS = (RunState.PLANNING, RunState.RUNNING, RunState.FINALIZING)
OPEN_RUNS = (RunState.PLANNING, RunState.RUNNING)
"""States of runs in which jobs can be executed."""
UNFINISHED_JOBS = (JobState.READY, JobState.ENQUEUED, JobState.RUNNING)
