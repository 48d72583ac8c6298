"""All routes of waiting rooms."""

from functools import partial

from tidegate.http.settings import HttpSettings
from tidegate.system import Api
from tidegate.systems.waiting_room import WaitingRooms
from tidegate.systems.waiting_room.api.pages.routes import PageRoutes
from tidegate.systems.waiting_room.api.place_events import PlaceEvents, PlaceStreams
from tidegate.systems.waiting_room.api.places import AdmissionRates, PlaceRoutes
from tidegate.systems.waiting_room.api.rooms import RoomRoutes


def room_api(waiting_rooms: WaitingRooms, settings: HttpSettings) -> Api:
    """Rooms, places in line, and the page of visitors.

    It takes no `HttpContext`, so that other programs can serve the same routes:
    `build_application(api.routes, settings)` builds an application from them that can be mounted.
    """
    paces, streams = AdmissionRates(), PlaceStreams(waiting_rooms.valkey, most=settings.most_watchers)
    places = PlaceRoutes(waiting_rooms, paces, partial(PlaceEvents, streams))
    routes = [RoomRoutes(waiting_rooms, paces), places, PageRoutes(waiting_rooms, paces, settings)]
    return Api(routes=[route for each in routes for route in each.routes()], close=streams.close)
