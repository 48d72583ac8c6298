"""Campaigns: coupons for the first N, points for all; each with a stream and consumer pools that come and go."""
