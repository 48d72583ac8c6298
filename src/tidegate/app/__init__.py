"""Assembles a process from settings, connections, the runtime and the systems that are enabled."""

from typing import TYPE_CHECKING

from tidegate.core.exports import lazy_exports

if TYPE_CHECKING:
    from tidegate.app.application import Application, open_application
    from tidegate.app.collection import Collection, open_collection
    from tidegate.app.sources import SourceCollection, open_sources

__all__ = [
    "Application",
    "Collection",
    "SourceCollection",
    "open_application",
    "open_collection",
    "open_sources",
]

__getattr__ = lazy_exports(
    __name__,
    {
        "tidegate.app.application": "Application open_application",
        "tidegate.app.collection": "Collection open_collection",
        "tidegate.app.sources": "SourceCollection open_sources",
    },
)
