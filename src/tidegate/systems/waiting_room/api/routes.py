"""All routes of waiting rooms."""

from functools import partial

from tidegate.http.access import Access
from tidegate.http.raw_handlers import Application
from tidegate.http.settings import HttpSettings
from tidegate.system import Api
from tidegate.systems.waiting_room import WaitingRooms
from tidegate.systems.waiting_room.api.fast_place import PREFIX, FastPlace
from tidegate.systems.waiting_room.api.pages.routes import PageRoutes
from tidegate.systems.waiting_room.api.place_events import PlaceEvents, PlaceStreams
from tidegate.systems.waiting_room.api.places import AdmissionRates, PlaceRoutes
from tidegate.systems.waiting_room.api.rooms import RoomRoutes


def room_api(waiting_rooms: WaitingRooms, settings: HttpSettings, access: Access | None = None) -> Api:
    """Rooms, places in line, and the page of visitors.

    It takes no `HttpContext`, so that other programs can serve the same routes:
    `build_application(api.routes, settings)` builds an application from them that can be mounted.
    """
    paces, streams = AdmissionRates(), PlaceStreams(waiting_rooms.valkey, most=settings.most_watchers)
    places = PlaceRoutes(waiting_rooms, paces, partial(PlaceEvents, streams))
    routes = [RoomRoutes(waiting_rooms, paces), places, PageRoutes(waiting_rooms, paces, settings)]
    access, largest_body = access or Access(settings), settings.largest_body

    def fast_place(application: Application) -> FastPlace:
        return FastPlace(application, waiting_rooms, paces, access, largest_body=largest_body)

    return Api(
        routes=[route for each in routes for route in each.routes()],
        close=streams.close,
        raw={PREFIX: fast_place},
    )
