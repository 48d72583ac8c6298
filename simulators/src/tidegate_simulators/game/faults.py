"""What goes wrong on purpose: a share of the calls, all calls for a character, or the next ones."""

from tidegate_simulators import faults
from tidegate_simulators.game.config import FaultKind, require_subject


class Faults(faults.Faults[FaultKind, int]):
    """Decides which call for a character fails, and how."""

    def inject(self, kind: FaultKind, *, times: int = 1, subject: int | None = None) -> None:
        """Let the next calls fail, or the next ones for one character."""
        require_subject(subject)
        self.inject_at(subject, kind, times)
