"""The gate: jobs wait in lanes for a permit of their pool, and never reach a worker without one."""

from typing import TYPE_CHECKING

from tidegate.core.exports import lazy_exports

if TYPE_CHECKING:
    from tidegate.flow.gate.clearance import Clearances, GatePermit, PermitWithdrawn
    from tidegate.flow.gate.gate import Census, Gate, Report, Settled
    from tidegate.flow.gate.jobs import Admitted, Allowance, Job, Outcome, Settlement, settlement
    from tidegate.flow.gate.memory import Learned, Memory, Note
    from tidegate.flow.gate.promises import Promises
    from tidegate.flow.gate.settings import CredentialLimits
    from tidegate.flow.gate.status import BucketStatus, CredentialStatus, PaceStatus, PoolStatus

__all__ = [
    "Admitted",
    "Allowance",
    "BucketStatus",
    "Census",
    "Clearances",
    "CredentialLimits",
    "CredentialStatus",
    "Gate",
    "GatePermit",
    "Job",
    "Learned",
    "Memory",
    "Note",
    "Outcome",
    "PaceStatus",
    "PermitWithdrawn",
    "PoolStatus",
    "Promises",
    "Report",
    "Settled",
    "Settlement",
    "settlement",
]

__getattr__ = lazy_exports(
    __name__,
    {
        "tidegate.flow.gate.clearance": "Clearances GatePermit PermitWithdrawn",
        "tidegate.flow.gate.gate": "Census Gate Report Settled",
        "tidegate.flow.gate.jobs": "Admitted Allowance Job Outcome Settlement settlement",
        "tidegate.flow.gate.memory": "Learned Memory Note",
        "tidegate.flow.gate.promises": "Promises",
        "tidegate.flow.gate.settings": "CredentialLimits",
        "tidegate.flow.gate.status": "BucketStatus CredentialStatus PaceStatus PoolStatus",
    },
)
