"""The gate: jobs wait in lanes for a permit of their pool, and never reach a worker without one."""

from tidegate.flow.gate.gate import Census, Gate, Settled
from tidegate.flow.gate.jobs import Admitted, Allowance, Job, Outcome, Settlement, settlement
from tidegate.flow.gate.memory import Memory, Note
from tidegate.flow.gate.promises import Promises
from tidegate.flow.gate.settings import CredentialLimits
from tidegate.flow.gate.status import BucketStatus, CredentialStatus, PaceStatus, PoolStatus

__all__ = [
    "Admitted",
    "Allowance",
    "BucketStatus",
    "Census",
    "CredentialLimits",
    "CredentialStatus",
    "Gate",
    "Job",
    "Memory",
    "Note",
    "Outcome",
    "PaceStatus",
    "PoolStatus",
    "Promises",
    "Settled",
    "Settlement",
    "settlement",
]
