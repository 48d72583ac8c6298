"""The shop as pages: plain HTML and forms, which need no script."""

from contextlib import suppress
from datetime import datetime, timedelta
from itertools import groupby
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, quote
from uuid import uuid4

from examples.ticketing import catalogue, payments, reservations
from examples.ticketing.access_check import AccessCheck
from examples.ticketing.answers import Refusal, refusal_of
from examples.ticketing.api import body_of, period_of
from examples.ticketing.bank import Card
from examples.ticketing.catalogue import Availability, Schedule
from examples.ticketing.concert_ranking import popular_concerts
from examples.ticketing.payments import PaymentState
from examples.ticketing.reservations import MOST_PER_USER, Reservation, ReservationState, room_of
from examples.ticketing.shop import BOARD, Shop
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from tidegate import InvalidArgument, ValkeyUnavailable
from tidegate.systems.ranking import RankingPeriod
from tidegate.systems.waiting_room import NotActive

_HERE = Path(__file__).parent
_POLICY = "; ".join(
    f"{what} {source}"
    for what, source in (
        ("default-src", "'none'"),
        ("style-src", "'self'"),
        ("img-src", "'self'"),
        ("form-action", "'self'"),
        ("base-uri", "'none'"),
        ("frame-ancestors", "'none'"),
    )
)
_HEADERS = {
    "Content-Security-Policy": _POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cache-Control": "no-store",
}
_CARDS = {
    Card.GOOD: "4242 … 4242 — a good one",
    Card.POOR: "4000 … 0002 — will be refused",
    Card.MUTE: "4000 … 0119 — the bank will not tell",
}


class Pages:
    """The handlers."""

    def __init__(self, shop: Shop) -> None:
        self._shop, self._access_check = shop, AccessCheck(shop.rooms, shop.database)
        self._templates = Environment(
            loader=FileSystemLoader(_HERE / "templates"), autoescape=True, undefined=StrictUndefined
        )
        self._templates.filters.update(money=_money, evening=_evening, clock=_clock, sentence=_sentence)

    def routes(self) -> list[Route]:
        """What there is to see and to do."""
        return [
            Route("/", self.show_concerts),
            Route("/schedules/{schedule:int}", self.show_seats),
            Route("/schedules/{schedule:int}/reservations", self.reserve, methods=["POST"]),
            Route("/schedules/{schedule:int}/leave", self.leave, methods=["POST"]),
            Route("/reservations/{reservation}", self.show_reservation),
            Route("/reservations/{reservation}/release", self.release, methods=["POST"]),
            Route("/reservations/{reservation}/payments", self.pay, methods=["POST"]),
            Route("/tickets/{code}", self.show_ticket),
            # Where a form was refused its address stays in the browser, and may be opened once more.
            Route("/schedules/{schedule:int}/reservations", self.back_to_seats),
            Route("/schedules/{schedule:int}/leave", self.back_to_seats),
            Route("/reservations/{reservation}/release", self.back_to_reservation),
            Route("/reservations/{reservation}/payments", self.back_to_reservation),
        ]

    async def show_concerts(self, request: Request) -> Response:
        """Everything on sale, and what is popular."""
        period = period_of(request)
        evenings = await self._shop.database.read(catalogue.all_schedules)
        counts = await self._shop.database.read(catalogue.seat_counts, [each.id for each in evenings])
        popular = await popular_concerts(self._shop, period, limit=5)

        def order(evening: Schedule) -> tuple[bool, bool, int]:
            """What can be had comes first, then what may come back, then what cannot: the latest first."""
            of = counts[evening.id]
            return not of.left, not of.free, evening.id if of.left else -evening.id

        shown = sorted(evenings, key=order)[:12]
        return self._page("concerts.html", evenings=shown, counts=counts, popular=popular, periods=list(RankingPeriod))

    async def show_seats(self, request: Request) -> Response:
        """The seat map of an evening."""
        return await self._seats(request)

    async def reserve(self, request: Request) -> Response:
        """Hold a seat; if another visitor was faster, show the remaining seats."""
        schedule: int = request.path_params["schedule"]
        user = await self._access_check.user(request, schedule)
        [seat] = await _fields(request, "seat")
        hold_for = self._shop.plan.hold_for
        try:
            held = await self._shop.database.transaction(reservations.reserve, schedule, seat, user, hold_for)
        except (reservations.SeatTaken, reservations.TooManySeats) as error:
            return await self._seats(request, _sentence(str(error)), 409)
        return _see(f"/reservations/{held.id}")

    async def show_reservation(self, request: Request) -> Response:
        """A seat that is held, and how to pay for it."""
        return await self._checkout(await self._access_check.reservation(request))

    async def release(self, request: Request) -> Response:
        """Give a seat back."""
        mine = await self._access_check.reservation(request)
        await self._shop.database.transaction(reservations.release, mine.id, mine.user)
        return _see(f"/schedules/{mine.schedule}")

    async def pay(self, request: Request) -> Response:
        """Pay, and see the ticket. The key is in the form, so to send it twice is to pay once."""
        mine = await self._access_check.reservation(request)
        card, key = await _fields(request, "card", "key")
        if card not in list(Card):
            raise InvalidArgument("card", "that one", "the bank knows no such card")
        payment = await self._shop.payment_service.pay(mine.id, mine.user, key, Card(card))
        if payment.state is PaymentState.COMPLETED:
            return _see(f"/tickets/{payment.ticket}")
        current = await self._shop.database.read(reservations.get, mine.id)
        if payment.state is PaymentState.DECLINED:
            still = " The seat is still yours." if current.state is ReservationState.HELD else ""
            return await self._checkout(current, f"The bank refused the card.{still}", 402)
        return await self._checkout(current, "The bank has not answered. Your seat is kept until we know.", 202)

    async def show_ticket(self, request: Request) -> Response:
        """Show the ticket; the code in the address is the proof."""
        ticket = await self._shop.database.read(payments.ticket, request.path_params["code"])
        evening = await self._shop.database.read(catalogue.schedule, ticket.reservation.schedule)
        return self._page("ticket.html", ticket=ticket, evening=evening)

    async def leave(self, request: Request) -> Response:
        """Go, so that the next may come in."""
        with suppress(ValkeyUnavailable):  # then the session expires
            await self._access_check.leave(request, request.path_params["schedule"])
        return _see("/")

    async def back_to_seats(self, request: Request) -> Response:
        """From the address of a form to the page on which it stands."""
        return _see(f"/schedules/{request.path_params['schedule']}")

    async def back_to_reservation(self, request: Request) -> Response:
        """The same."""
        return _see(f"/reservations/{quote(request.path_params['reservation'], safe='')}")

    def refused(self, error: Exception) -> Response:
        """An expected error as a page; a visitor that is not inside is sent to the waiting page."""
        if isinstance(error, NotActive):
            return _see(f"/rooms/{error.room}")
        return self.refusal(refusal_of(error))

    def refusal(self, refusal: Refusal) -> Response:
        """Why something was not done, as a page."""
        return self._page("refused.html", refusal.status, refusal=refusal)

    async def _seats(self, request: Request, notice: str = "", status: int = 200) -> Response:
        schedule: int = request.path_params["schedule"]
        visit = await self._access_check.visit(request, schedule)
        evening = await self._shop.database.read(catalogue.schedule, schedule)
        counts = await self._shop.database.read(catalogue.seat_counts, [schedule])
        seats = await self._shop.database.read(catalogue.seat_map, schedule, visit.user)
        rows = [(row, list(of_row)) for row, of_row in groupby(seats, key=lambda seat: seat.label[0])]
        mine = sum(seat.availability in {Availability.MINE, Availability.BOUGHT} for seat in seats)
        return self._page(
            "seats.html",
            status,
            evening=evening,
            rows=rows,
            counts=counts[schedule],
            most=MOST_PER_USER if mine >= MOST_PER_USER else None,
            visit=visit,
            notice=notice,
            hold=_words(self._shop.plan.hold_for),
        )

    async def _checkout(self, held: Reservation, notice: str = "", status: int = 200) -> Response:
        if held.state is ReservationState.PAID:  # also if the payment was found complete only afterwards
            return _see(f"/tickets/{await self._shop.database.read(payments.ticket_for, held.id)}")
        evening = await self._shop.database.read(catalogue.schedule, held.schedule)
        left = max(timedelta(), held.held_until - self._shop.database.clock.now())
        shown = {"held": held, "evening": evening, "notice": notice, "cards": _CARDS, "left": _words(left)}
        # A new key each time the form is shown: it names this attempt, however often it is sent.
        return self._page("checkout.html", status, **shown, key=str(uuid4()))

    def _page(self, template: str, status: int = 200, **values: Any) -> Response:
        shown = self._templates.get_template(template).render(room_of=room_of, **values)
        return Response(shown, status, headers=_HEADERS, media_type="text/html")


async def _fields(request: Request, *names: str) -> list[str]:
    """Fields of the form that was sent."""
    try:
        fields = parse_qs((await body_of(request)).decode(errors="replace"), max_num_fields=10)
    except ValueError:
        raise InvalidArgument("body", "that one", "has more fields than any form here") from None
    for name in names:
        if name not in fields:
            raise InvalidArgument(name, "", "is missing")
    return [fields[name][0] for name in names]


def _see(address: str) -> Response:
    return RedirectResponse(address, 303, headers={"Cache-Control": "no-store"})


def _money(amount: int) -> str:
    return f"₩{amount:,}"


def _evening(moment: datetime) -> str:
    return f"{moment.astimezone(BOARD.zone):%A, %-d %B %Y, %H:%M}"


def _words(span: timedelta) -> str:
    """Format the remaining whole seconds, rounded down."""
    minutes, seconds = divmod(int(span.total_seconds()), 60)
    parts = [_number(minutes, "minute")] if minutes else []
    return " and ".join(parts + ([_number(seconds, "second")] if seconds or not parts else []))


def _number(number: int, unit: str) -> str:
    return f"{number} {unit}{'' if number == 1 else 's'}"


def _clock(moment: datetime) -> str:
    """Format a time, rounded down to the second."""
    return f"{moment.astimezone(BOARD.zone):%H:%M:%S}"


def _sentence(words: str) -> str:
    """With a capital at its beginning, and otherwise as it was: the names of seats have capitals, too."""
    return f"{words[:1].upper()}{words[1:]}."
