"""Limit how often each of many subjects, such as client addresses, does something."""

from typing import TYPE_CHECKING

from tidegate.core.exports import lazy_exports

if TYPE_CHECKING:
    from tidegate.primitives.throttle.keys import ThrottleKeys
    from tidegate.primitives.throttle.throttle import Throttle

__all__ = ["Throttle", "ThrottleKeys"]

__getattr__ = lazy_exports(
    __name__,
    {
        "tidegate.primitives.throttle.keys": "ThrottleKeys",
        "tidegate.primitives.throttle.throttle": "Throttle",
    },
)
