"""Documents as files for others to read: Parquet, CSV or JSON Lines, with a manifest."""

from tidegate.documents.export.columns import Column
from tidegate.documents.export.exporter import ExportFailed, Progress, Wish, export
from tidegate.documents.export.folder import ExportRefused
from tidegate.documents.export.formats import Format
from tidegate.documents.export.manifest import FileEntry, Manifest

__all__ = [
    "Column",
    "ExportFailed",
    "ExportRefused",
    "FileEntry",
    "Format",
    "Manifest",
    "Progress",
    "Wish",
    "export",
]
