"""HTTP routes of crawls: `/v1/crawl`."""
