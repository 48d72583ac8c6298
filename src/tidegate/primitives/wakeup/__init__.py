"""A bell on the server: whoever waits at it wakes at once, and a ring in an empty house is heard later."""

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
