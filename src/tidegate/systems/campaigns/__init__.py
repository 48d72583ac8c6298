"""Campaigns: coupons for the first N, points for all; each with a stream and crews that come and go."""
