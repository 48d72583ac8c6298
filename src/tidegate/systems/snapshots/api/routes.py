"""All routes of snapshots."""

from tidegate.http.authentication import Authenticator
from tidegate.http.callers import Role
from tidegate.http.raw_handlers import Admission, Application
from tidegate.system import Api, HttpContext
from tidegate.systems.snapshots.api.dead_letters import DeadSnapshotRoutes
from tidegate.systems.snapshots.api.fast_read import PREFIX, FastRead
from tidegate.systems.snapshots.api.request_coalescing import ReadCoalescer
from tidegate.systems.snapshots.api.snapshots import SnapshotRoutes
from tidegate.systems.snapshots.service import Snapshots
from tidegate.systems.snapshots.topics import SnapshotsOverviewReader


def snapshot_api(snapshots: Snapshots, overview: SnapshotsOverviewReader, http: HttpContext) -> Api:
    """Snapshots, their dead letters and their prefetching, with the raw handler of reads."""
    routes = SnapshotRoutes(snapshots, http.settings, overview)
    coalescer = ReadCoalescer(snapshots.reader.read, snapshots.feed)
    admission = Admission(Authenticator(http.access, ()), Role.READ)

    def fast_read(application: Application) -> FastRead:
        longest_wait_s = routes.longest_wait_s
        return FastRead(application, snapshots.reader, admission, coalescer, longest_wait_s=longest_wait_s)

    def close() -> None:
        routes.close()
        coalescer.close()

    # The fixed addresses come first: `/v1/snapshots/{kind}/{key}` also matches `/v1/snapshots/dead/{letter_id}`.
    every = [*DeadSnapshotRoutes(snapshots).routes(), *routes.routes()]
    return Api(routes=every, close=close, raw={PREFIX: fast_read})
