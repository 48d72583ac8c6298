"""`tidegate simulate`: the commands of the distribution `tidegate-simulators`."""

from tidegate.core.errors import TidegateError

try:
    from tidegate_simulators.command_line import app
except ModuleNotFoundError as missing:
    if missing.name != "tidegate_simulators":
        raise
    advice = "pip install tidegate-simulators (in a clone: pip install ./simulators)"
    raise TidegateError(f"the simulators are not installed: {advice}") from None

__all__ = ["app"]
