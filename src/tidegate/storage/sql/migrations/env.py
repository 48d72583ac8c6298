"""Called by Alembic with an open connection; the caller owns its transaction."""

from alembic import context

from tidegate.storage.sql.migrations import VERSION_TABLE
from tidegate.storage.sql.schema import metadata

connection = context.config.attributes["connection"]
context.configure(connection=connection, target_metadata=metadata, version_table=VERSION_TABLE)
with context.begin_transaction():
    context.run_migrations()
