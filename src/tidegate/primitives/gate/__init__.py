"""The gate: jobs wait in queues for a permit of their pool, and are not dispatched without one."""

from typing import TYPE_CHECKING

from tidegate.core.exports import lazy_exports

if TYPE_CHECKING:
    from tidegate.primitives.gate.clearance import Clearances, GatePermit, PermitWithdrawn
    from tidegate.primitives.gate.gate import Gate, Report, Settled, ShardStatus
    from tidegate.primitives.gate.model import (
        Admitted,
        Allowance,
        BucketStatus,
        CredentialRecord,
        CredentialStatus,
        Job,
        LearnedLimits,
        Outcome,
        PaceStatus,
        PoolRecord,
        PoolStatus,
        Settlement,
        settlement,
    )
    from tidegate.primitives.gate.scripts import EnqueueIntents
    from tidegate.primitives.settings import CredentialLimits

__all__ = [
    "Admitted",
    "Allowance",
    "BucketStatus",
    "Clearances",
    "CredentialLimits",
    "CredentialRecord",
    "CredentialStatus",
    "EnqueueIntents",
    "Gate",
    "GatePermit",
    "Job",
    "LearnedLimits",
    "Outcome",
    "PaceStatus",
    "PermitWithdrawn",
    "PoolRecord",
    "PoolStatus",
    "Report",
    "Settled",
    "Settlement",
    "ShardStatus",
    "settlement",
]

__getattr__ = lazy_exports(
    __name__,
    {
        "tidegate.primitives.gate.clearance": "Clearances GatePermit PermitWithdrawn",
        "tidegate.primitives.gate.gate": "ShardStatus Gate Report Settled",
        "tidegate.primitives.gate.model": (
            "Admitted Allowance Job Outcome Settlement settlement LearnedLimits PoolRecord CredentialRecord "
            "BucketStatus CredentialStatus PaceStatus PoolStatus"
        ),
        "tidegate.primitives.gate.scripts": "EnqueueIntents",
        "tidegate.primitives.settings": "CredentialLimits",
    },
)
