"""Timers: each becomes a message in a stream when it is due, never before."""

from typing import TYPE_CHECKING

from tidegate.core.exports import lazy_exports

if TYPE_CHECKING:
    from tidegate.primitives.timers.keys import TimerKeys
    from tidegate.primitives.timers.settings import TimerSettings
    from tidegate.primitives.timers.timers import Due, Timer, Timers, TimersStatus

__all__ = ["Due", "Timer", "TimerKeys", "TimerSettings", "Timers", "TimersStatus"]

__getattr__ = lazy_exports(
    __name__,
    {
        "tidegate.primitives.timers.keys": "TimerKeys",
        "tidegate.primitives.timers.settings": "TimerSettings",
        "tidegate.primitives.timers.timers": "Due Timer Timers TimersStatus",
    },
)
