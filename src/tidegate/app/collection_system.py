"""Declares collection (GitHub and the crawl) to the application. Transitional: it becomes one system each."""

import os
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from tidegate.system import Context, OpenSystem, System

if TYPE_CHECKING:
    from tidegate.settings import Settings


class CollectionSystem(System):
    """Runs of jobs: collection from GitHub, and the crawl."""

    name = "collection"
    sections = {
        "aws": "tidegate.engine.sqs.settings:AwsSettings",
        "collect": "tidegate.engine.settings:CollectSettings",
        "crawl": "tidegate.systems.crawl.settings:CrawlSettings",
        "github": "tidegate.systems.github.settings:GithubSettings",
        "upstream": "tidegate.engine.upstream.settings:UpstreamSettings",
    }
    kept_tables = {
        "collection_places": "one row for each source",
        "collection_schedules": "deleted by `tidegate schedules remove`",
        "crawl_hosts": "one row for each host that is crawled; deleted by `tidegate crawl hosts --forget`",
        "crawl_identities": "deleted by `tidegate crawl identities remove`",
        "crawl_products": "the result of crawls: as many as the sites have listed",
        "crawl_sightings": "one row for each product and crawl",
        "crawl_turns": "a few rows that are locked",
        "credential_allowances": "deleted with their last credential",
        "credentials": "deleted by `tidegate credentials remove`",
        "documents": "the result of collections: as many as the upstream has listed",
        "statistics_items": "one row for each document",
        "statistics_users": "one row for each user",
    }
    encrypted_tables = ("crawl_identities",)

    def checks(self, settings: "Settings") -> Sequence[Callable[[], object]]:
        """Sites of the crawl, the library for AWS, and the token of the environment."""
        from tidegate.app.crawl import crawl_sites
        from tidegate.app.token_check import check_token
        from tidegate.engine.sqs.opening import require_library
        from tidegate.engine.sqs.settings import AwsSettings
        from tidegate.systems.github.settings import VARIABLE

        return [
            lambda: crawl_sites(settings),
            lambda: require_library(settings.section(AwsSettings)),
            lambda: check_token(settings, os.environ.get(VARIABLE)),
        ]

    @asynccontextmanager
    async def open(self, context: Context) -> AsyncGenerator[OpenSystem]:
        """Collection, for the length of a block; without a credential it waits for one."""
        from tidegate.app.collection import open_collection_on
        from tidegate.systems.github.settings import VARIABLE

        token = os.environ.get(VARIABLE) or None
        async with open_collection_on(context, token=token, needs_credential=False) as collection:
            yield collection.opened()
