"""Crawls product pages of marketplaces: targets, identities, politeness, stored answers and products."""

from typing import TYPE_CHECKING

from tidegate.core.exports import lazy_exports

if TYPE_CHECKING:
    from tidegate.systems.crawl.settings import CrawlSettings
    from tidegate.systems.crawl.site import Challenged, ListedProduct, ResultPage, Site, Unreadable
    from tidegate.systems.crawl.stages import Stage

SOURCE = "crawl"
"""The name of the source in runs, jobs and schedules."""

__all__ = [
    "Challenged",
    "CrawlSettings",
    "ListedProduct",
    "ResultPage",
    "Site",
    "Stage",
    "Unreadable",
]

__getattr__ = lazy_exports(
    __name__,
    {
        "tidegate.systems.crawl.settings": "CrawlSettings",
        "tidegate.systems.crawl.site": "Challenged ListedProduct ResultPage Site Unreadable",
        "tidegate.systems.crawl.stages": "Stage",
    },
)
