"""What the leader does for snapshots by the clock: asks for what is due, and moves old history to the archive."""

from collections.abc import Sequence

from tidegate.core.telemetry.logs import get_logger
from tidegate.runtime.timekeeper import DueSource
from tidegate.settings import Settings
from tidegate.storage.sql import Database
from tidegate.system import Context
from tidegate.systems.snapshots.archive.history import History
from tidegate.systems.snapshots.archive.nightly import NightlyArchive
from tidegate.systems.snapshots.archive.opening import is_possible, open_lifecycle, open_storage
from tidegate.systems.snapshots.prefetch.backlog import Backlog
from tidegate.systems.snapshots.prefetch.planner import Prefetch, Requests
from tidegate.systems.snapshots.settings import SnapshotSettings
from tidegate.systems.snapshots.transport import GROUPS, Topic, Transport
from tidegate.systems.snapshots.transport.moving import MovingTransport, TransportMove

log = get_logger(__name__)


def upkeep_of_snapshots(parts: Context, requests: Requests, transport: Transport) -> Sequence[DueSource]:
    """What the settings want of it: sources for the leader's timekeeper."""
    settings = parts.settings
    sources: list[DueSource] = [TransportMove(transport)] if isinstance(transport, MovingTransport) else []
    if settings.section(SnapshotSettings).prefetch.enabled:
        backlog = Backlog(lambda: transport.lag(Topic.LOW, GROUPS[Topic.LOW]))
        sources.append(Prefetch(parts.database, requests, settings.section(SnapshotSettings).prefetch, backlog))
    if settings.section(SnapshotSettings).archive.enabled:
        if is_possible():
            sources.append(_nightly(parts.database, settings))
        else:
            log.warning("archive.left_out", remedy='pip install "tidegate[archive]"')
    return sources


def history_of_snapshots(settings: Settings, database: Database) -> History:
    """What subjects were, from the database and from the archive of the settings."""
    return History(database, lambda: open_storage(settings.section(SnapshotSettings).archive, settings.data_dir))


def _nightly(database: Database, settings: Settings) -> NightlyArchive:
    archive = settings.section(SnapshotSettings).archive
    return NightlyArchive(
        database,
        lambda: open_storage(archive, settings.data_dir),
        archive,
        lambda: open_lifecycle(archive, settings.data_dir),
    )
