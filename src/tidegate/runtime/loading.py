"""Loads classes and objects that settings name as `module:name`."""

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

from tidegate.core.errors import InvalidSettings, TidegateError


def load_part(place: str, *, variable: str, what: str, needs: Sequence[str], is_made: Callable[[Any], bool]) -> Any:
    """Import the object at `place`. Unless `is_made` says that it is an instance, it is called without arguments.

    Raises `InvalidSettings`, which names the `variable`, if it cannot be loaded or lacks one of the attributes `needs`.
    """
    module_name, _, name = place.partition(":")
    try:
        found = getattr(import_module(module_name), name)
        part = found if is_made(found) else found()
    except ModuleNotFoundError as error:
        raise InvalidSettings(
            f"{variable}: {place}: no module is called {error.name}. Install it, or name its folder in PYTHONPATH"
        ) from None
    except TidegateError:
        raise
    except Exception as error:  # code of the user: any error is reported with its name
        raise InvalidSettings(f"{variable}: {place}: {type(error).__name__}: {error}") from error
    if missing := [each for each in needs if not hasattr(part, each)]:
        raise InvalidSettings(f"{variable}: {place} is no {what}: it has no {', '.join(missing)}")
    return part
