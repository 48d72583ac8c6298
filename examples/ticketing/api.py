"""The shop as JSON, under `/api`."""

from datetime import datetime
from typing import Any

import msgspec
from examples.ticketing import catalogue, reservations
from examples.ticketing.access_check import AccessCheck
from examples.ticketing.answers import Refusal, refusal_of
from examples.ticketing.bank import Card
from examples.ticketing.catalogue import Concert, Seat
from examples.ticketing.concert_ranking import popular_concerts
from examples.ticketing.payments import Payment, PaymentState
from examples.ticketing.reservations import room_of
from examples.ticketing.shop import Shop
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from tidegate import InvalidArgument
from tidegate.systems.ranking import RankingPeriod
from tidegate.systems.waiting_room import NotActive

_LARGEST_BODY = 4096
_LONGEST_NUMBER = 6
_STATUS = {PaymentState.COMPLETED: 201, PaymentState.DECLINED: 402, PaymentState.CHARGING: 202}


class SeatWish(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The seat that a visitor wants."""

    seat: str


class CardShown(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The card with which a visitor wants to pay."""

    card: Card


class Evening(msgspec.Struct, frozen=True, kw_only=True):
    """An evening on sale."""

    id: int
    concert: Concert
    starts_at: datetime
    seats_free: int
    seats_left: int
    """Seats that are not paid: free and held ones."""
    waiting_page: str


class Api:
    """The handlers."""

    def __init__(self, shop: Shop) -> None:
        self._shop, self._access_check = shop, AccessCheck(shop.rooms, shop.database)

    def routes(self) -> list[Route]:
        """What can be asked."""
        return [
            Route("/api/concerts/ranking", self.show_ranking),
            Route("/api/schedules", self.list_schedules),
            Route("/api/schedules/{schedule:int}/seats", self.list_seats),
            Route("/api/schedules/{schedule:int}/reservations", self.reserve, methods=["POST"]),
            Route("/api/schedules/{schedule:int}/session", self.leave, methods=["DELETE"]),
            Route("/api/reservations/{reservation}", self.show_reservation),
            Route("/api/reservations/{reservation}", self.release, methods=["DELETE"]),
            Route("/api/reservations/{reservation}/payments", self.pay, methods=["POST"]),
        ]

    async def show_ranking(self, request: Request) -> Response:
        """Concerts by completed payments, the most popular first. The numbers are not shown."""
        return answered(await popular_concerts(self._shop, period_of(request), _limit(request)))

    async def list_schedules(self, _: Request) -> Response:
        """Every evening on sale."""
        found = await self._shop.database.read(catalogue.all_schedules)
        counts = await self._shop.database.read(catalogue.seat_counts, [each.id for each in found])
        evenings = [
            Evening(
                id=each.id,
                concert=each.concert,
                starts_at=each.starts_at,
                seats_free=counts[each.id].free,
                seats_left=counts[each.id].left,
                waiting_page=f"/rooms/{room_of(each.id)}",
            )
            for each in found
        ]
        return answered({"schedules": evenings})

    async def list_seats(self, request: Request) -> Response:
        """The seats of an evening; for visitors inside."""
        schedule: int = request.path_params["schedule"]
        user = await self._access_check.user(request, schedule)
        seats: list[Seat] = await self._shop.database.read(catalogue.seat_map, schedule, user)
        counts = await self._shop.database.read(catalogue.seat_counts, [schedule])
        return answered({"seats": seats, "seats_free": counts[schedule].free, "seats_left": counts[schedule].left})

    async def reserve(self, request: Request) -> Response:
        """Hold a seat for a while, in which it can be paid."""
        schedule: int = request.path_params["schedule"]
        wish = msgspec.json.decode(await body_of(request), type=SeatWish)
        user = await self._access_check.user(request, schedule)
        hold_for = self._shop.plan.hold_for
        reservation = await self._shop.database.transaction(reservations.reserve, schedule, wish.seat, user, hold_for)
        return answered(reservation, 201)

    async def show_reservation(self, request: Request) -> Response:
        """How a reservation of one's own is."""
        return answered(await self._access_check.reservation(request))

    async def release(self, request: Request) -> Response:
        """Give a seat back."""
        mine = await self._access_check.reservation(request)
        await self._shop.database.transaction(reservations.release, mine.id, mine.user)
        return Response(status_code=204)

    async def pay(self, request: Request) -> Response:
        """Pay for a seat. With the same `Idempotency-Key` again, it is the same payment."""
        shown = msgspec.json.decode(await body_of(request), type=CardShown)
        key = request.headers.get("idempotency-key")
        if not key:
            raise InvalidArgument("Idempotency-Key", key, "name the payment, so that it can be repeated safely")
        mine = await self._access_check.reservation(request)
        payment: Payment = await self._shop.payment_service.pay(mine.id, mine.user, key, shown.card)
        return answered(payment, _STATUS[payment.state])

    async def leave(self, request: Request) -> Response:
        """Leave the room, so that the next may come in."""
        await self._access_check.leave(request, request.path_params["schedule"])
        return Response(status_code=204)


def answered(value: Any, status: int = 200) -> Response:
    """A value as JSON."""
    return Response(msgspec.json.encode(value), status, media_type="application/json")


def refused(error: Exception) -> Response:
    """An expected error as JSON; a visitor that is not inside is sent to the waiting page."""
    more = {"waiting_page": f"/rooms/{error.room}"} if isinstance(error, NotActive) else {}
    return answered_refusal(refusal_of(error), **more)


def answered_refusal(refusal: Refusal, **more: str) -> Response:
    """Why something was not done, as JSON."""
    response = answered({"error": refusal.error, "detail": refusal.detail, **more}, refusal.status)
    if refusal.status == 503:
        response.headers["Retry-After"] = "1"
    return response


async def body_of(request: Request) -> bytes:
    """The body of the request; its size is limited."""
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > _LARGEST_BODY:
            raise InvalidArgument("body", len(body), f"must have at most {_LARGEST_BODY} bytes")
    return body


def period_of(request: Request) -> RankingPeriod:
    """Return the requested period."""
    given = request.query_params.get("period", RankingPeriod.DAILY.value)
    if given not in [period.value for period in RankingPeriod]:
        raise InvalidArgument("period", given, f"must be one of {', '.join(RankingPeriod)}")
    return RankingPeriod(given)


def _limit(request: Request) -> int:
    given = request.query_params.get("limit", "10")
    if not given.isascii() or not given.isdigit() or len(given) > _LONGEST_NUMBER:
        raise InvalidArgument("limit", given[:80], "must be a whole number, and not a large one")
    return int(given)
