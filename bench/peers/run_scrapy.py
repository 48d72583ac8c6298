"""Scrapy with scrapy-redis: a marketplace is searched, and three documents of each product that is found are items.

Given the Redis, and a file with the parameters of the crawl. Runs until it is stopped: the starting process counts
the items. Done as its manuals say, and set in its favour: no delay, no throttle, a plain list as the queue, as few
middlewares and extensions as the work allows, the fastest event loop, and items go where scrapy-redis puts them.
"""

import itertools
import json
import sys
import warnings
from pathlib import Path

import scrapy
from scrapy import signals
from scrapy.core.downloader.handlers._aiohttp import AiohttpDownloadHandler
from scrapy.core.downloader.handlers.http11 import HTTP11DownloadHandler
from scrapy.crawler import CrawlerProcess
from scrapy.exceptions import DontCloseSpider
from scrapy.http import Request

URL, PLAN = sys.argv[1], json.loads(Path(sys.argv[2]).read_text())
IDLE_S = 0.02


class LateAiohttp(AiohttpDownloadHandler):
    """Experimental, says Scrapy. Made with the first request: before, no loop runs."""

    lazy = True


HANDLERS = {"twisted": HTTP11DownloadHandler, "aiohttp": LateAiohttp}


class Identities:
    """Each request goes out under the next one, with all its headers."""

    def __init__(self):
        self._turns = itertools.cycle(PLAN["identities"])

    def process_request(self, request):
        for name, value in next(self._turns).items():
            request.headers[name] = value


class Market(scrapy.Spider):
    """Searches for every keyword, page after page."""

    name = "market"

    @classmethod
    def from_crawler(cls, crawler, *args, **kwargs):
        spider = super().from_crawler(crawler, *args, **kwargs)
        crawler.signals.connect(spider.stay, signal=signals.spider_idle)
        return spider

    def stay(self):
        """Others may put something into the queue; without this it would look for that every five seconds."""
        from twisted.internet import reactor  # once Scrapy has chosen it

        reactor.callLater(IDLE_S, self.crawler.engine._slot.nextcall.schedule)
        raise DontCloseSpider

    async def start(self):
        if PLAN["begins"]:
            for url in PLAN["urls"]:
                for keyword in PLAN["keywords"]:
                    yield Request(f"{url}/search?{keyword}&page=1", callback=self.parse)

    def parse(self, response):
        for card in response.css("li.product-card[data-product-id]"):
            product, shop = card.attrib["data-product-id"], card.attrib["data-shop-id"]
            for stage, path in (
                ("mini_shop", f"/api/shops/{shop}/mini?product={product}"),
                ("detail", f"/api/products/{product}"),
                ("option", f"/api/products/{product}/options"),
            ):
                about = {"product": product, "stage": stage}
                yield Request(response.urljoin(path), callback=self.parse_document, cb_kwargs=about)
        if next_page := response.css("nav.paging a[rel=next]::attr(href)").get():
            yield Request(response.urljoin(next_page), callback=self.parse)

    def parse_document(self, response, product, stage):
        yield {"product_id": product, "stage": stage, "document": response.json()}


def settings():
    none = "scrapy.downloadermiddlewares."
    return {
        "LOG_LEVEL": "WARNING",
        "TWISTED_REACTOR": "twisted.internet.asyncioreactor.AsyncioSelectorReactor",
        "ASYNCIO_EVENT_LOOP": "uvloop.Loop",
        "DOWNLOAD_HANDLERS": {"http": HANDLERS[PLAN["handler"]]},
        "CONCURRENT_REQUESTS": PLAN["concurrency"],
        "CONCURRENT_REQUESTS_PER_DOMAIN": PLAN["concurrency"],
        # So many tasks are made for every page; the usual hundred, of which a document needs one, take a third of all.
        "CONCURRENT_ITEMS": 2,
        "DOWNLOAD_DELAY": 0,
        "AUTOTHROTTLE_ENABLED": False,
        "ROBOTSTXT_OBEY": True,
        "COOKIES_ENABLED": False,
        "TELNETCONSOLE_ENABLED": False,
        "REMOTE_CONTROL_ENABLED": False,
        "MEMUSAGE_ENABLED": False,
        "STATS_DUMP": False,
        "LOGSTATS_INTERVAL": 0,
        "DOWNLOADER_MIDDLEWARES": {
            Identities: 450,
            none + "offsite.OffsiteMiddleware": None,
            none + "httpauth.HttpAuthMiddleware": None,
            none + "defaultheaders.DefaultHeadersMiddleware": None,
            none + "useragent.UserAgentMiddleware": None,
            none + "redirect.MetaRefreshMiddleware": None,
            none + "httpproxy.HttpProxyMiddleware": None,
        },
        "SCHEDULER": "scrapy_redis.scheduler.Scheduler",
        "SCHEDULER_PERSIST": True,
        "SCHEDULER_QUEUE_CLASS": "scrapy_redis.queue.FifoQueue",
        "DUPEFILTER_CLASS": "scrapy_redis.dupefilter.RFPDupeFilter",
        "ITEM_PIPELINES": {"scrapy_redis.pipelines.RedisPipeline": 300},
        "REDIS_URL": URL,
    }


# scrapy-redis uses deprecated functions of Scrapy; a warning for every page takes time.
warnings.simplefilter("ignore")
process = CrawlerProcess(settings())
process.crawl(Market)
print("{}", flush=True)
process.start()
