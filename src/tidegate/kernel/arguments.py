"""Refuse nonsense at the door, naming the value and the reason."""

from tidegate.kernel.errors import InvalidArgument

_LONGEST_NAME = 512


def require_name(name: str, value: str) -> str:
    """A non-empty printable text without the characters that keys use to separate their parts."""
    if not value:
        raise InvalidArgument(name, value, "must not be empty")
    if len(value) > _LONGEST_NAME:
        raise InvalidArgument(name, value[:32] + "…", f"must have at most {_LONGEST_NAME} characters")
    if not value.isprintable() or "|" in value or "{" in value or "}" in value:
        raise InvalidArgument(name, value, "must be printable and contain none of | { }")
    return value


def require_positive(name: str, value: float) -> None:
    """More than zero."""
    if not value > 0:
        raise InvalidArgument(name, value, "must be positive")


def require_not_negative(name: str, value: float) -> None:
    """Zero or more."""
    if not value >= 0:
        raise InvalidArgument(name, value, "must not be negative")


def require_at_most(name: str, value: float, most: float) -> None:
    """No more than `most`."""
    if value > most:
        raise InvalidArgument(name, value, f"must be at most {most}")


def require_whole(name: str, value: int, *, least: int, most: int) -> None:
    """A whole number (a truth value is none), no less than `least` and no more than `most`."""
    if type(value) is not int:
        raise InvalidArgument(name, value, "must be a whole number")
    if not least <= value <= most:
        raise InvalidArgument(name, value, f"must be from {least} to {most}")
