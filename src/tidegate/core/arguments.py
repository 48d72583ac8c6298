"""Validation of arguments. Each function raises `InvalidArgument`, which names the value and the reason."""

import unicodedata

from tidegate.core.errors import InvalidArgument

_LONGEST_NAME = 512


def require_name(name: str, value: str) -> str:
    """Require a non-empty printable text without the characters that separate the parts of keys."""
    if not value:
        raise InvalidArgument(name, value, "must not be empty")
    if len(value) > _LONGEST_NAME:
        raise InvalidArgument(name, value[:32] + "…", f"must have at most {_LONGEST_NAME} characters")
    # Names are parts of keys and of values in scripts: `|` separates parts there, `{` and `}` mark the slot of a key.
    if not value.isprintable() or "|" in value or "{" in value or "}" in value:
        raise InvalidArgument(name, value, "must be printable and contain none of | { }")
    return value


def normalise_id(name: str, value: str, *, longest: int) -> str:
    """Normalise the id of a user or another subject: Unicode NFKC, without surrounding spaces.

    Spellings that look the same become one id. Raises `InvalidArgument` for an id that is empty, longer than `longest`
    characters, or contains invisible characters (control, format, unassigned).

        normalise_id("user", " Ada ", longest=128)  # "Ada"
    """
    found = (value if value.isascii() else unicodedata.normalize("NFKC", value)).strip()
    if not found:
        raise InvalidArgument(name, value[:32], "must not be empty")
    if len(found) > longest:
        raise InvalidArgument(name, found[:32] + "…", f"must have at most {longest} characters")
    if not found.isprintable():
        raise InvalidArgument(name, found, "must contain no invisible characters")
    return found


def require_positive(name: str, value: float) -> None:
    """Require a number greater than zero."""
    # Not `value <= 0`, which is false for NaN.
    if not value > 0:
        raise InvalidArgument(name, value, "must be positive")


def require_not_negative(name: str, value: float) -> None:
    """Require a number of at least zero."""
    # As above, so that NaN is refused.
    if not value >= 0:
        raise InvalidArgument(name, value, "must not be negative")


def require_at_most(name: str, value: float, most: float) -> None:
    """Require a number of at most `most`."""
    if value > most:
        raise InvalidArgument(name, value, f"must be at most {most}")


def require_whole(name: str, value: int, *, least: int, most: int) -> None:
    """Require a whole number from `least` to `most`; booleans are refused."""
    if type(value) is not int:
        raise InvalidArgument(name, value, "must be a whole number")
    if not least <= value <= most:
        raise InvalidArgument(name, value, f"must be from {least} to {most}")
