"""GitHub collection, put together: the same in a command that collects, in a worker, and behind HTTP."""

from collections.abc import AsyncGenerator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

from tidegate.assembly.parts import Parts, open_parts
from tidegate.assembly.process import build_process
from tidegate.collect.collector import Collector, Ground
from tidegate.collect.one_token import OneToken
from tidegate.collect.orchestrator import Orchestrator
from tidegate.documents import DocumentStore, open_documents
from tidegate.github import GithubSource
from tidegate.runtime.service import Service
from tidegate.runtime.supervisor import Supervisor
from tidegate.settings import Settings
from tidegate.upstream import UpstreamClient

POOL = "github"
"""The pool of credentials that serve everybody."""


@dataclass(frozen=True)
class Collection:
    """A process's hold on collection."""

    parts: Parts
    documents: DocumentStore
    collector: Collector

    @property
    def orchestrator(self) -> Orchestrator:
        """The door through which runs begin."""
        return self.collector.orchestrator

    def process(self, *, works: bool = True, services: Mapping[str, Service] | None = None) -> Supervisor:
        """A process of the deployment, with workers where it `works`, and with `services` of the caller's."""
        ours = self.collector.services if works else {}
        return build_process(
            self.parts,
            handlers=self.collector.handlers,
            services={**ours, **(services or {})},
            duties={"recovery": self.collector.duty},
            on_death=[self.collector.duty.ring],
        )


@asynccontextmanager
async def open_collection(settings: Settings, *, token: str) -> AsyncGenerator[Collection]:
    """Everything that collection needs, for the length of a block."""
    async with AsyncExitStack() as stack:
        parts = await stack.enter_async_context(open_parts(settings))
        client = await stack.enter_async_context(UpstreamClient(settings.upstream))
        documents = await open_documents(settings.documents, parts.database)
        stack.push_async_callback(documents.close)
        tokens = OneToken(token, pool=POOL, data_dir=settings.data_dir, limits=settings.gate)
        collector = Collector(
            Ground(parts.database, parts.gate, parts.jobs, parts.owner, documents),
            [GithubSource(settings.github.api_url, settings.github.include)],
            caller=client,
            secrets=tokens,
            enrol_credentials=lambda: tokens.enrol(parts.gate),
        )
        yield Collection(parts, documents, collector)
