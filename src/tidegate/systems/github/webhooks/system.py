"""Declares the webhooks to the application. Modules are imported when a process uses them."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from tidegate.core.errors import InvalidSettings
from tidegate.system import Api, Command, Context, OpenSystem, System

if TYPE_CHECKING:
    from tidegate.runtime.delivery import Handler
    from tidegate.runtime.retention import RetentionRule
    from tidegate.system import HttpContext
    from tidegate.systems.github.webhooks.receiver import Webhooks

UNCONFIGURED = (
    "no secret of a GitHub webhook is configured. Set TIDEGATE_GITHUB_WEBHOOKS__SECRETS to a list with the secret of "
    'the webhook, like ["..."]'
)


class GithubWebhookSystem(System):
    """Declares the GitHub webhooks, which update documents within a second of a change."""

    name = "github_webhooks"
    requires = ("collection",)
    commands = {
        "github": Command("tidegate.systems.github.commands:webhooks_app", "List deliveries of GitHub's webhooks.")
    }
    sections = {"github_webhooks": "tidegate.systems.github.webhooks.settings:GithubWebhookSettings"}
    metrics = "tidegate.systems.github.webhooks.metrics"

    @asynccontextmanager
    async def open(self, context: Context) -> AsyncGenerator[OpenSystem]:
        """Open the webhooks for the duration of the block."""
        from tidegate.storage.documents import open_documents
        from tidegate.systems.github.settings import NAME
        from tidegate.systems.github.webhooks.receiver import Webhooks
        from tidegate.systems.github.webhooks.settings import GithubWebhookSettings

        documents = await open_documents(context.settings.documents, context.database)
        webhooks = Webhooks(context.database, documents.of(NAME), context.section(GithubWebhookSettings))
        try:
            yield OpenWebhooks(context, webhooks)
        finally:
            await webhooks.close()
            await documents.close()


class OpenWebhooks(OpenSystem):
    """The open webhooks of a process."""

    def __init__(self, context: Context, webhooks: Webhooks) -> None:
        self._context, self.webhooks = context, webhooks

    def event_handlers(self) -> Sequence[Handler]:
        """Return the handler that applies deliveries; also without a secret, so that stored ones are applied."""
        return [self.webhooks.handler]

    def retention_rules(self) -> Sequence[RetentionRule]:
        """Return the rules that delete old deliveries."""
        from tidegate.systems.github.webhooks.deliveries import rules

        kept = self._context.settings.retention
        return rules(self._context.database, kept=self.webhooks.settings.kept, dead_letters=kept.dead_letters)

    def api(self, http: HttpContext) -> Api:
        """Return the routes; without a secret, an explanation."""
        from tidegate.systems.github.webhooks.receiver import ADDRESS, WebhookRoutes

        del http
        routes = WebhookRoutes(self.webhooks, self._context.database)
        if not self.webhooks.settings.secrets:
            return Api(routes=routes.routes()[1:], absent={ADDRESS: UNCONFIGURED})
        return Api(routes=routes.routes())

    def receiver(self) -> Api:
        """Return the route that GitHub calls; raises `InvalidSettings` without a secret."""
        from tidegate.systems.github.webhooks.receiver import WebhookRoutes

        if not self.webhooks.settings.secrets:
            raise InvalidSettings(UNCONFIGURED)
        return Api(routes=WebhookRoutes(self.webhooks, self._context.database).receiving())
