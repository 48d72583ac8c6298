"""Wake-up signal. A signal that is sent while no process waits is kept for the next one that waits."""

from typing import TYPE_CHECKING

from tidegate.core.exports import lazy_exports

if TYPE_CHECKING:
    from tidegate.primitives.wakeup.wakeup import Wakeup

__all__ = ["Wakeup"]

__getattr__ = lazy_exports(
    __name__,
    {
        "tidegate.primitives.wakeup.wakeup": "Wakeup",
    },
)
