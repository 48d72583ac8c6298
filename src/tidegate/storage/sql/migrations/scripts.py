"""Uses Alembic to list migrations, to find those that a database lacks, and to apply them."""

from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection

from tidegate.core.errors import ServerRefused
from tidegate.storage.sql.migrations import VERSION_TABLE


def missing(connection: Connection, name: str) -> list[str]:
    """Return the migrations that the database called `name` lacks, in the order of application."""
    scripts = ScriptDirectory.from_config(_config())
    context = MigrationContext.configure(connection, opts={"version_table": VERSION_TABLE})
    present = context.get_current_heads()
    known = {script.revision for script in scripts.walk_revisions()}
    if unknown := set(present) - known:
        raise ServerRefused(
            name, f"its schema {min(unknown)} is newer than this program", remedy="Install the newer version"
        )
    newer = scripts.iterate_revisions("heads", present or "base")
    return [script.revision for script in newer if script.revision not in present][::-1]


def upgrade(connection: Connection) -> None:
    """Apply all missing migrations."""
    config = _config()
    config.attributes["connection"] = connection
    command.upgrade(config, "head")


def _config() -> Config:
    config = Config()
    # The parser of the configuration interprets `%` in values.
    config.set_main_option("script_location", str(Path(__file__).parent).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    return config
