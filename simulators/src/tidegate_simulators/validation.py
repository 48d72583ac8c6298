"""Checks of configuration values; each raises `InvalidArgument` with the name, the value and the reason."""

from tidegate_simulators.errors import InvalidArgument


def require_positive(name: str, value: float) -> None:
    """Require a number greater than zero."""
    if not value > 0:
        raise InvalidArgument(name, value, "must be positive")


def require_not_negative(name: str, value: float) -> None:
    """Require a number that is zero or greater."""
    if not value >= 0:
        raise InvalidArgument(name, value, "must not be negative")


def require_at_most(name: str, value: float, most: float) -> None:
    """Require a number that is not greater than `most`."""
    if value > most:
        raise InvalidArgument(name, value, f"must be at most {most}")


def require_share(name: str, value: float) -> None:
    """Require a number from 0 to 1."""
    require_not_negative(name, value)
    require_at_most(name, value, 1)


def require_whole(name: str, value: int, *, least: int, most: int) -> None:
    """Require an `int` (not a `bool`) from `least` to `most`."""
    if type(value) is not int:
        raise InvalidArgument(name, value, "must be a whole number")
    if not least <= value <= most:
        raise InvalidArgument(name, value, f"must be from {least} to {most}")
