"""HTTP routes of campaigns: `/v1/campaigns`."""
