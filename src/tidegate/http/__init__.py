"""Tools that all HTTP routes share: routes, authentication, problems, event streams, the server."""

from typing import TYPE_CHECKING

from tidegate.core.exports import lazy_exports

if TYPE_CHECKING:
    from tidegate.http.binding import Binding

__all__ = ["Binding"]

__getattr__ = lazy_exports(__name__, {"tidegate.http.binding": "Binding"})
