"""Tools that all HTTP routes share: routes, authentication, problems, event streams, the server."""

from typing import TYPE_CHECKING

from tidegate.core.exports import lazy_exports

if TYPE_CHECKING:
    from tidegate.http.application import build_application
    from tidegate.http.binding import Binding
    from tidegate.http.dispatch import RequestInput
    from tidegate.http.routes import route
    from tidegate.http.server import HttpService
    from tidegate.http.settings import HttpSettings

__all__ = [
    "Binding",
    "HttpService",
    "HttpSettings",
    "RequestInput",
    "build_application",
    "route",
]

__getattr__ = lazy_exports(
    __name__,
    {
        "tidegate.http.application": "build_application",
        "tidegate.http.binding": "Binding",
        "tidegate.http.dispatch": "RequestInput",
        "tidegate.http.routes": "route",
        "tidegate.http.server": "HttpService",
        "tidegate.http.settings": "HttpSettings",
    },
)
