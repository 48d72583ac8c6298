"""The waiting page: what a shop can put in front of itself."""

from typing import TYPE_CHECKING

from tidegate.core.exports import lazy_exports

if TYPE_CHECKING:
    from tidegate.http.pages.desk import RoomPages

__all__ = ["RoomPages"]

__getattr__ = lazy_exports(
    __name__,
    {
        "tidegate.http.pages.desk": "RoomPages",
    },
)
