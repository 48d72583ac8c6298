"""Stores of collected documents: SQL (default) or MongoDB, with one interface and one conformance suite.

`tidegate.storage.documents.mongo` is imported when it is opened; it needs the extra `mongo`.
"""

from typing import TYPE_CHECKING

from tidegate.core.exports import lazy_exports

if TYPE_CHECKING:
    from tidegate.storage.documents.document import LARGEST_BODY, Document, DocumentSettings, StoredDocument
    from tidegate.storage.documents.sql import SqlDocuments, open_documents
    from tidegate.storage.documents.store import (
        ChangeDigest,
        ConditionalWrite,
        Documents,
        DocumentStore,
        Listing,
        Staged,
        WriteAction,
        Written,
    )

__all__ = [
    "LARGEST_BODY",
    "ChangeDigest",
    "ConditionalWrite",
    "Document",
    "DocumentSettings",
    "DocumentStore",
    "Documents",
    "Listing",
    "SqlDocuments",
    "Staged",
    "StoredDocument",
    "WriteAction",
    "Written",
    "open_documents",
]

__getattr__ = lazy_exports(
    __name__,
    {
        "tidegate.storage.documents.document": "LARGEST_BODY Document StoredDocument DocumentSettings",
        "tidegate.storage.documents.sql": "open_documents SqlDocuments",
        "tidegate.storage.documents.store": (
            "ChangeDigest ConditionalWrite DocumentStore Documents Listing Staged WriteAction Written"
        ),
    },
)
