"""Where collected items go: SQL (default) or MongoDB, behind one interface and one conformance suite.

`tidegate.documents.mongo` is imported by whoever opens it; it needs the extra `mongo`.
"""

from typing import TYPE_CHECKING

from tidegate.core.exports import lazy_exports

if TYPE_CHECKING:
    from tidegate.documents.document import LARGEST_BODY, Document, StoredDocument
    from tidegate.documents.opening import open_documents
    from tidegate.documents.settings import DocumentSettings
    from tidegate.documents.sql import SqlDocuments
    from tidegate.documents.store import DocumentStore, Listing, Staged, Written

__all__ = [
    "LARGEST_BODY",
    "Document",
    "DocumentSettings",
    "DocumentStore",
    "Listing",
    "SqlDocuments",
    "Staged",
    "StoredDocument",
    "Written",
    "open_documents",
]

__getattr__ = lazy_exports(
    __name__,
    {
        "tidegate.documents.document": "LARGEST_BODY Document StoredDocument",
        "tidegate.documents.opening": "open_documents",
        "tidegate.documents.settings": "DocumentSettings",
        "tidegate.documents.sql": "SqlDocuments",
        "tidegate.documents.store": "DocumentStore Listing Staged Written",
    },
)
