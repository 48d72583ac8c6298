"""The marketplace with code that can be broken and mended while a process runs."""

from collections.abc import Mapping
from typing import Any

from tidegate.systems.crawl.marketplace import MarketplaceSite
from tidegate.systems.crawl.site import ResultPage
from tidegate.systems.crawl.stages import SEARCH, Stage


class RepairableSite(MarketplaceSite):
    name = "mendable"

    def __init__(self) -> None:
        self.broken = set[str]()

    def read_listing(self, body: bytes) -> ResultPage:
        if SEARCH in self.broken:
            raise KeyError("price")
        return super().read_listing(body)

    def extract(self, stage: Stage, product_id: str, body: bytes) -> Mapping[str, Any]:
        if stage in self.broken:
            raise KeyError("price")
        return super().extract(stage, product_id, body)


SITE = RepairableSite()
