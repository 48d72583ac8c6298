"""All routes of collection. Transitional: they move to the engine and to the systems."""

from tidegate.app.collection import Collection
from tidegate.http.crawl_identities import IdentityDesk
from tidegate.http.crawl_products import CrawlProductDesk
from tidegate.http.crawls import CrawlDesk
from tidegate.http.credentials import Credentials
from tidegate.http.dead_letters import DeadLetters
from tidegate.http.feed import RunFeed
from tidegate.http.jobs import Jobs
from tidegate.http.quotas import Quotas
from tidegate.http.reports import Reports
from tidegate.http.runs import Runs
from tidegate.http.schedules import SchedulesDesk
from tidegate.http.statistics import StatisticsDesk
from tidegate.http.views import RunViews
from tidegate.system import Api, HttpContext


def collection_api(collection: Collection, http: HttpContext) -> Api:
    """Routes of runs, credentials and crawls."""
    parts = collection.parts
    views = RunViews(parts.database, parts.gate, collection.credentials)
    feed = RunFeed(views.detail, collection.bulletin, http.seats)
    routes = [
        Runs(collection, views, feed),
        Jobs(collection),
        SchedulesDesk(collection),
        StatisticsDesk(collection),
        Credentials(collection),
        Quotas(collection),
        Reports(collection),
        DeadLetters(collection),
        CrawlDesk(collection),
        CrawlProductDesk(collection.crawl.products, collection.crawl.raws, collection.crawls),
        IdentityDesk(collection.crawl.identities),
    ]
    return Api(routes=[route for each in routes for route in each.routes()], close=feed.close)
