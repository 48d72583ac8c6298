"""Assembles a process from settings, connections, the runtime and the enabled systems."""

from typing import TYPE_CHECKING

from tidegate.core.exports import lazy_exports

if TYPE_CHECKING:
    from tidegate.app.application import Application, open_application

__all__ = ["Application", "open_application"]

__getattr__ = lazy_exports(__name__, {"tidegate.app.application": "Application open_application"})
