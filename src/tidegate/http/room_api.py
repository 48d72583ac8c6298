"""All routes of waiting rooms."""

from functools import partial

from tidegate.http.pages import RoomPages
from tidegate.http.places import Paces, Places
from tidegate.http.room_events import PlaceEvents, PlaceStreams
from tidegate.http.rooms import Rooms
from tidegate.http.settings import HttpSettings
from tidegate.system import Api
from tidegate.systems.waiting_room import Reception


def room_api(reception: Reception, settings: HttpSettings) -> Api:
    """Rooms, places in line, and the pages of visitors.

    `build_application(api.endpoints, settings)` makes an application of them that can be mounted in another one.
    """
    paces, streams = Paces(), PlaceStreams(reception.valkey, most=settings.most_watchers)
    places = Places(reception, paces, partial(PlaceEvents, streams))
    routes = [Rooms(reception, paces), places, RoomPages(reception, paces, settings)]
    return Api(endpoints=[endpoint for each in routes for endpoint in each.endpoints()], close=streams.close)
