"""Helpers shared by all commands: lazy groups, settings and event loop, tables, formatting."""

from typing import TYPE_CHECKING

from tidegate.core.exports import lazy_exports

if TYPE_CHECKING:
    from tidegate.cli.running import load_settings, run

__all__ = [
    "load_settings",
    "run",
]

__getattr__ = lazy_exports(
    __name__,
    {
        "tidegate.cli.running": "load_settings run",
    },
)
