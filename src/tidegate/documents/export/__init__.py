"""Documents as files for others to read: Parquet, CSV or JSON Lines, with a manifest."""

from typing import TYPE_CHECKING

from tidegate.core.exports import lazy_exports

if TYPE_CHECKING:
    from tidegate.documents.export.columns import Column
    from tidegate.documents.export.exporter import ExportFailed, Progress, Wish, export, export_stream
    from tidegate.documents.export.folder import ExportRefused
    from tidegate.documents.export.formats import Format, installed_formats
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
    "export_stream",
    "installed_formats",
]

__getattr__ = lazy_exports(
    __name__,
    {
        "tidegate.documents.export.columns": "Column",
        "tidegate.documents.export.exporter": "ExportFailed Progress Wish export export_stream",
        "tidegate.documents.export.folder": "ExportRefused",
        "tidegate.documents.export.formats": "Format installed_formats",
        "tidegate.documents.export.manifest": "FileEntry Manifest",
    },
)
