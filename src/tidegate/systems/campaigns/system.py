"""Declares campaigns to the application."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from tidegate.system import Command, Context, OpenSystem, System


class CampaignSystem(System):
    """Promotions with limited stock: users enter, and workers decide what each entry gets."""

    name = "campaigns"
    sections = {"campaigns": "tidegate.systems.campaigns.settings:CampaignSettings"}
    commands = {
        "campaign": Command(
            "tidegate.systems.campaigns.commands:app", "Make, start and stop campaigns, and see who got what."
        )
    }
    kept_tables = {"point_accounts": "the points of users: one row for each"}

    @asynccontextmanager
    async def open(self, context: Context) -> AsyncGenerator[OpenSystem]:
        """Campaigns, for the length of a block."""
        from tidegate.systems.campaigns.opening import OpenCampaigns, open_campaigns

        async with open_campaigns(context.settings, context.database, context.valkey) as campaigns:
            yield OpenCampaigns(context, campaigns)
