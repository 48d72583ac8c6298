"""Which store it is, by the settings."""

from importlib.util import find_spec

from tidegate.core.errors import InvalidSettings
from tidegate.storage.documents.settings import DocumentSettings
from tidegate.storage.documents.sql import SqlDocuments
from tidegate.storage.documents.store import Documents
from tidegate.storage.sql import Database


async def check_documents(settings: DocumentSettings) -> str:
    """See that the store answers, where it is not the database; nothing is written. Returns its address."""
    if settings.url is None:
        return ""
    _require_driver()
    from tidegate.storage.documents.mongo import MongoDocuments

    return await MongoDocuments.ping(settings.url)


async def open_documents(settings: DocumentSettings, database: Database) -> Documents:
    """The store that the settings name; close it in the end.

    Raises `InvalidSettings` when its driver is not installed, and what the store raises when it cannot be used.
    """
    if settings.url is None:
        return SqlDocuments(database)
    _require_driver()
    from tidegate.storage.documents.mongo import MongoDocuments

    return await MongoDocuments.open(settings.url, clock=database.clock)


def _require_driver() -> None:
    if find_spec("pymongo") is None:
        raise InvalidSettings('documents in MongoDB need the driver pymongo: pip install "tidegate[mongo]"')
