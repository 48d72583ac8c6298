"""Opens the archive that the settings name, where the packages for it are there."""

from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from tidegate.kernel.errors import InvalidSettings
from tidegate.snapshots.archive.settings import ArchiveSettings

if TYPE_CHECKING:
    from tidegate.snapshots.archive.objects import ObjectStorage

_NEEDED = ("obstore", "pyarrow")


def is_possible() -> bool:
    """Whether the packages for it are there."""
    return all(find_spec(name) is not None for name in _NEEDED)


def open_storage(settings: ArchiveSettings, data_dir: Path) -> "ObjectStorage":
    """The storage named by the settings, else the folder `archive` in the data folder."""
    if not is_possible():
        raise InvalidSettings('the archive needs packages that are not here: pip install "tidegate[archive]"')
    from tidegate.snapshots.archive.objects import ObjectStorage

    return ObjectStorage(settings.url or (data_dir.absolute() / "archive").as_uri())
