"""Opens the document store that the settings name: the SQL database, or MongoDB."""

from importlib.util import find_spec

from tidegate.core.errors import InvalidSettings
from tidegate.storage.documents.document import DocumentSettings
from tidegate.storage.documents.sql import SqlDocuments
from tidegate.storage.documents.store import Documents
from tidegate.storage.sql import Database


async def check_documents(settings: DocumentSettings) -> str:
    """Check that MongoDB answers if documents are stored there; writes nothing.

    Returns the address of the server without its password, or an empty text if documents are stored in the database.
    """
    if settings.url is None:
        return ""
    _require_driver()
    from tidegate.storage.documents.mongo import MongoDocuments

    return await MongoDocuments.ping(settings.url)


async def open_documents(settings: DocumentSettings, database: Database) -> Documents:
    """Open the document store that the settings name. The caller closes it.

    Raises `InvalidSettings` if the driver of MongoDB is not installed, and the errors of MongoDB if it cannot be used.
    """
    if settings.url is None:
        return SqlDocuments(database)
    _require_driver()
    from tidegate.storage.documents.mongo import MongoDocuments

    return await MongoDocuments.open(settings.url, clock=database.clock)


def _require_driver() -> None:
    if find_spec("pymongo") is None:
        raise InvalidSettings('documents in MongoDB need the driver pymongo: pip install "tidegate[mongo]"')
