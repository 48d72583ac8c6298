"""Things to do later: each timer becomes a message in a stream when its time has come, never before."""

from typing import TYPE_CHECKING

from tidegate.core.exports import lazy_exports

if TYPE_CHECKING:
    from tidegate.flow.timers.keys import TimerKeys
    from tidegate.flow.timers.settings import TimerSettings
    from tidegate.flow.timers.timers import Due, Timer, Timers, TimersStatus

__all__ = ["Due", "Timer", "TimerKeys", "TimerSettings", "Timers", "TimersStatus"]

__getattr__ = lazy_exports(
    __name__,
    {
        "tidegate.flow.timers.keys": "TimerKeys",
        "tidegate.flow.timers.settings": "TimerSettings",
        "tidegate.flow.timers.timers": "Due Timer Timers TimersStatus",
    },
)
