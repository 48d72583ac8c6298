"""All routes of snapshots."""

from tidegate.http.authentication import Door
from tidegate.http.dead_snapshots import DeadDesk
from tidegate.http.fast_snapshot_read import Express
from tidegate.http.prefetch import PrefetchDesk
from tidegate.http.request_coalescing import Lobby
from tidegate.http.snapshots import SnapshotDesk
from tidegate.system import Api, HttpContext
from tidegate.systems.snapshots.opening import Snapshots


def snapshot_api(snapshots: Snapshots, http: HttpContext) -> Api:
    """Snapshots, their dead letters and their prefetching, with the fast handler for reads."""
    desk = SnapshotDesk(snapshots, http.settings)
    lobby = Lobby(snapshots.reader.read, snapshots.news)
    fast = Express(snapshots.reader, Door(http.access, ()), lobby, longest_wait_s=desk.longest_wait_s)

    def close() -> None:
        desk.close()
        lobby.close()

    # In this order: a kind's name can be anything, and `dead` and `prefetch` are addresses of ours.
    ours = [*DeadDesk(snapshots).endpoints(), *PrefetchDesk(snapshots).endpoints()]
    return Api(endpoints=[*ours, *desk.endpoints()], close=close, fast_handlers=[fast])
