"""The waiting page: what a shop can put in front of itself."""

from tidegate.http.pages.desk import RoomPages

__all__ = ["RoomPages"]
