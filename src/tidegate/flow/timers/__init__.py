"""Things to do later: each timer becomes a message in a stream when its time has come, never before."""

from tidegate.flow.timers.keys import TimerKeys
from tidegate.flow.timers.settings import TimerSettings
from tidegate.flow.timers.timers import Due, Timer, Timers, TimersStatus

__all__ = ["Due", "Timer", "TimerKeys", "TimerSettings", "Timers", "TimersStatus"]
