"""Opens the archive that the settings select; only if the packages it needs are installed."""

from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from tidegate.core.errors import InvalidSettings
from tidegate.settings import Settings
from tidegate.storage.sql import Database
from tidegate.systems.snapshots.archive.archiver import NightlyArchive
from tidegate.systems.snapshots.archive.history import SnapshotHistory
from tidegate.systems.snapshots.settings import ArchiveSettings, SnapshotSettings

if TYPE_CHECKING:
    from tidegate.systems.snapshots.archive.lifecycle import Lifecycle
    from tidegate.systems.snapshots.archive.object_storage import ObjectStorage

_NEEDED = ("obstore", "pyarrow")


def is_possible() -> bool:
    """Return whether the packages for the archive are installed."""
    return all(find_spec(name) is not None for name in _NEEDED)


def require_packages() -> None:
    """Raise `InvalidSettings` if the packages for the archive are missing."""
    if not is_possible():
        raise InvalidSettings('the archive needs packages that are not installed: pip install "tidegate[archive]"')


def open_storage(settings: ArchiveSettings, data_dir: Path) -> "ObjectStorage":
    """Return the storage of the settings; by default the folder `archive` in the data folder."""
    require_packages()
    from tidegate.systems.snapshots.archive.lifecycle import cold_folder
    from tidegate.systems.snapshots.archive.object_storage import ObjectStorage

    url = address_of(settings, data_dir)
    return ObjectStorage(url, cold_folder(settings, url) if url.startswith("file:") else None)


def open_lifecycle(settings: ArchiveSettings, data_dir: Path) -> "Lifecycle | None":
    """Return the rules for old files; None if the operator has to set them up in the storage."""
    from tidegate.systems.snapshots.archive.lifecycle import lifecycle_of

    return lifecycle_of(settings, address_of(settings, data_dir))


def address_of(settings: ArchiveSettings, data_dir: Path) -> str:
    """Return the address of the archive."""
    return settings.url or (data_dir.absolute() / "archive").as_uri()


def history_of_snapshots(settings: Settings, database: Database) -> SnapshotHistory:
    """Return the history, read from the database and from the archive of the settings."""
    return SnapshotHistory(
        database, lambda: open_storage(settings.section(SnapshotSettings).archive, settings.data_dir)
    )


def nightly_archive(settings: Settings, database: Database) -> NightlyArchive:
    """Return the due source that moves old history to the archive of `settings`."""
    archive = settings.section(SnapshotSettings).archive
    return NightlyArchive(
        database,
        lambda: open_storage(archive, settings.data_dir),
        archive,
        lambda: open_lifecycle(archive, settings.data_dir),
    )
