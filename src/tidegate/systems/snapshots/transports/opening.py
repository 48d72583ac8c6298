"""Opens the transport that the settings select; Kafka only where its driver is installed."""

from contextlib import suppress
from importlib.util import find_spec
from typing import TYPE_CHECKING

from tidegate.core.errors import InvalidSettings, TidegateError
from tidegate.core.telemetry.logs import get_logger
from tidegate.system import Context
from tidegate.systems.snapshots.settings import KafkaSettings, SnapshotSettings
from tidegate.systems.snapshots.transports.migration import MigratingTransport
from tidegate.systems.snapshots.transports.protocol import Transport
from tidegate.systems.snapshots.transports.streams import StreamTransport

if TYPE_CHECKING:
    from tidegate.systems.snapshots.transports.kafka.transport import KafkaTransport

log = get_logger(__name__)

_UNIT = "snapshots"


def open_kafka(settings: KafkaSettings) -> "KafkaTransport":
    """Return the Kafka transport, to be closed by the caller; raises `InvalidSettings` without its driver."""
    # aiokafka needs cramjam for zstd; without it the first publish fails.
    if find_spec("aiokafka") is None or find_spec("cramjam") is None:
        raise InvalidSettings('the transport kafka needs the driver aiokafka: pip install "tidegate[kafka]"')
    from tidegate.systems.snapshots.transports.kafka.transport import KafkaTransport

    return KafkaTransport(settings)


def open_transport(parts: Context) -> Transport:
    """Return the transport of this process; a migrating one while `previous_transport` is set."""
    settings = parts.settings.section(SnapshotSettings)
    current = _named(parts, settings.transport)
    if settings.previous_transport is None:
        return current
    return MigratingTransport(current, _named(parts, settings.previous_transport))


def _named(parts: Context, name: str) -> Transport:
    if name == "kafka":
        return open_kafka(parts.settings.section(SnapshotSettings).kafka)
    return StreamTransport(parts.valkey, parts.valkey.unit(_UNIT), parts.owner)


async def warn_of_events_left_behind(parts: Context) -> None:
    """Log a warning if streams have events that no worker reads, since `previous_transport` was removed too early."""
    settings = parts.settings.section(SnapshotSettings)
    if settings.transport == "streams" or settings.previous_transport is not None:
        return
    with suppress(TidegateError):  # the check is optional
        if left := await _named(parts, "streams").unfinished():
            log.warning("snapshots.events_left_behind", events=left)
