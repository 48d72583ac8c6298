"""Lazy imports of the public names of a package.

A package lists the modules of its public names; importing the package imports none of them:

    if TYPE_CHECKING:
        from tidegate.primitives.timers import Timers

    __all__ = ["Timers"]
    __getattr__ = lazy_exports(__name__, {"tidegate.primitives.timers": "Timers"})
"""

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def lazy_exports(package: str, modules: Mapping[str, str]) -> Callable[[str], Any]:
    """The `__getattr__` of `package`: imports the module that has a name, and keeps the value in the package.

    `modules` lists the names of each module. No name may be that of a module of the package. The last part of the name
    of a module exports the module: `{"tidegate.storage.sql.outbox": "outbox"}`.
    """
    places = {name: module for module, names in modules.items() for name in names.split()}

    def find(name: str) -> Any:
        if name not in places:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module = import_module(places[name])
        value = module if places[name].endswith(f".{name}") else getattr(module, name)
        # Later accesses find the value in the package and do not call `find`.
        setattr(sys.modules[package], name, value)
        return value

    return find
