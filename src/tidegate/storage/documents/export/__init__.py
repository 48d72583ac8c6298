"""Exports documents to files: Parquet, CSV or JSON Lines, with a manifest."""

from typing import TYPE_CHECKING

from tidegate.core.exports import lazy_exports

if TYPE_CHECKING:
    from tidegate.storage.documents.export.columns import Column
    from tidegate.storage.documents.export.exporter import (
        ExportFailed,
        ExportProgress,
        ExportRequest,
        export,
        export_stream,
    )
    from tidegate.storage.documents.export.folder import ExportRefused, FileEntry, Manifest
    from tidegate.storage.documents.export.formats import Format, installed_formats

__all__ = [
    "Column",
    "ExportFailed",
    "ExportProgress",
    "ExportRefused",
    "ExportRequest",
    "FileEntry",
    "Format",
    "Manifest",
    "export",
    "export_stream",
    "installed_formats",
]

__getattr__ = lazy_exports(
    __name__,
    {
        "tidegate.storage.documents.export.columns": "Column",
        "tidegate.storage.documents.export.exporter": "ExportFailed ExportProgress ExportRequest export export_stream",
        "tidegate.storage.documents.export.folder": "ExportRefused FileEntry Manifest",
        "tidegate.storage.documents.export.formats": "Format installed_formats",
    },
)
