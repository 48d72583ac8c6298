"""Campaigns: coupons for the first N, points for all; each with a stream that consumers read while entries arrive."""
