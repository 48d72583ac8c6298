"""Timers: each becomes a message in a stream when it is due, never before."""

from typing import TYPE_CHECKING

from tidegate.core.exports import lazy_exports

if TYPE_CHECKING:
    from tidegate.primitives.settings import TimerSettings
    from tidegate.primitives.timers.timers import Due, Timer, TimerKeys, Timers, TimersStatus

__all__ = ["Due", "Timer", "TimerKeys", "TimerSettings", "Timers", "TimersStatus"]

__getattr__ = lazy_exports(
    __name__,
    {
        "tidegate.primitives.timers.timers": "TimerKeys Due Timer Timers TimersStatus",
        "tidegate.primitives.settings": "TimerSettings",
    },
)
