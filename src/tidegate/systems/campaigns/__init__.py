"""Campaigns: coupons for the first N, points for all; each with a stream that consumers read while entries arrive."""

from typing import TYPE_CHECKING

from tidegate.core.exports import lazy_exports

if TYPE_CHECKING:
    from tidegate.systems.campaigns.model import (
        Campaign,
        CampaignChange,
        CampaignEntry,
        CampaignExists,
        CampaignInUse,
        CampaignPlan,
        CampaignState,
        CampaignStatus,
        EntryAnswer,
        EntryOutcome,
        EntryReceipt,
        EntryResult,
        EntryState,
        EntryVerdict,
    )
    from tidegate.systems.campaigns.service import Campaigns
    from tidegate.systems.campaigns.settings import CampaignSettings

__all__ = [
    "Campaign",
    "CampaignChange",
    "CampaignEntry",
    "CampaignExists",
    "CampaignInUse",
    "CampaignPlan",
    "CampaignSettings",
    "CampaignState",
    "CampaignStatus",
    "Campaigns",
    "EntryAnswer",
    "EntryOutcome",
    "EntryReceipt",
    "EntryResult",
    "EntryState",
    "EntryVerdict",
]

__getattr__ = lazy_exports(
    __name__,
    {
        "tidegate.systems.campaigns.model": (
            "Campaign CampaignChange CampaignEntry CampaignExists CampaignInUse CampaignPlan CampaignState "
            "CampaignStatus EntryAnswer EntryOutcome EntryReceipt EntryResult EntryState EntryVerdict"
        ),
        "tidegate.systems.campaigns.service": "Campaigns",
        "tidegate.systems.campaigns.settings": "CampaignSettings",
    },
)
