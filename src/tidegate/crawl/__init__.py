"""Product pages of marketplaces: schedules, identities, raw answers, products, and no orphan."""
