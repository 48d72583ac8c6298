"""Systems that are installed: found through the entry point group `tidegate.systems`, imported when they are used.

Finding a system reads only the metadata of installed distributions. A distribution registers one in its pyproject.toml:

    [project.entry-points."tidegate.systems"]
    link_checker = "link_checker.system:LinkChecker"

The name of the entry point is the name of the system. Here a system is only loaded; `tidegate.system` says what it is.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from types import ModuleType
from typing import Any

from tidegate.core.errors import InvalidSettings, TidegateError

GROUP = "tidegate.systems"
_OURS = "tidegate"


@cache
def installed_systems() -> Mapping[str, EntryPoint]:
    """Entry points by name of the system: those of this distribution first, then the others by name.

    Raises `InvalidSettings` when two distributions register the same name.
    """
    found: dict[str, EntryPoint] = {}
    for point in sorted(entry_points(group=GROUP), key=lambda each: (_distribution(each) != _OURS, each.name)):
        other = found.setdefault(point.name, point)
        if other.value != point.value:
            raise InvalidSettings(
                f"two installed distributions have a system {point.name!r}: {_distribution(other)} and "
                f"{_distribution(point)}. Uninstall one of them"
            )
    return found


@cache
def load_system(name: str) -> Any:
    """Import the system `name` and return its only instance.

    Raises `InvalidSettings` when no such system is installed, or when it cannot be imported.
    """
    point = installed_systems().get(name)
    if point is None:
        known = ", ".join(sorted(installed_systems())) or "none"
        raise InvalidSettings(f"no system {name!r} is installed; installed are: {known}")
    try:
        system = point.load()()
        own_name = system.name
    except Exception as error:  # code of another distribution: name it, whatever is wrong
        raise InvalidSettings(
            f"the system {name!r} of the distribution {_distribution(point)} cannot be loaded: "
            f"{type(error).__name__}: {error}. Repair or uninstall it, or leave it out of TIDEGATE_SYSTEMS"
        ) from error
    if own_name != name:
        raise InvalidSettings(f"the system {name!r} calls itself {own_name!r}; both names must be the same")
    return system


def loadable_systems() -> Iterator[Any]:
    """The installed systems, each imported when the iterator reaches it, without those that cannot be loaded.

    For questions to all systems, whether they are used or not; `broken_systems` names those that are missing here.
    """
    for name in installed_systems():
        try:
            system = load_system(name)
        except InvalidSettings:
            continue
        yield system


@cache
def broken_systems() -> Mapping[str, str]:
    """Installed systems that cannot be loaded, and why. Imports every installed system."""
    reasons: dict[str, str] = {}
    for name in installed_systems():
        try:
            load_system(name)
        except InvalidSettings as error:
            reasons[name] = str(error)
    return reasons


def load_place(place: str) -> Any:
    """Import what `module:name` refers to."""
    module, _, name = place.partition(":")
    return getattr(import_module(module), name)


@cache
def section_class(section: str) -> Any:
    """The class of a section of the settings; None when no installed system has a section of this name.

    Imports as few systems as possible: the one with the name of the section first. Raises `InvalidSettings` when that
    one cannot be loaded, since its settings cannot be checked.
    """
    if section in installed_systems() and (place := load_system(section).sections.get(section)) is not None:
        return load_place(place)
    places = (system.sections.get(section) for system in loadable_systems())
    return next((load_place(place) for place in places if place is not None), None)


def all_sections() -> Mapping[str, Any]:
    """The classes of all sections of all systems that can be loaded. Imports every installed system."""
    names = [section for system in loadable_systems() for section in system.sections]
    return {name: section_class(name) for name in sorted(names)}


def load_metrics(system: Any) -> ModuleType | None:
    """Import the module that defines the metrics of a system; None if it has no metrics of its own.

    Raises `InvalidSettings` if it cannot be imported, for instance because another metric has one of its names.
    """
    if not system.metrics:
        return None
    try:
        return import_module(system.metrics)
    except Exception as error:  # code of another distribution: name it, whatever is wrong
        raise InvalidSettings(
            f"the metrics of the system {system.name!r} cannot be loaded: {type(error).__name__}: {error}. "
            "Repair or uninstall it, or leave it out of TIDEGATE_SYSTEMS"
        ) from error


def all_metrics() -> Mapping[str, ModuleType]:
    """Modules of metrics by name of the system, of all systems that can be loaded. Imports every installed system."""
    modules = {system.name: load_metrics(system) for system in loadable_systems()}
    return {name: module for name, module in modules.items() if module is not None}


def _distribution(point: EntryPoint) -> str:
    return point.dist.name if point.dist is not None else "unknown"


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
