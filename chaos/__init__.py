"""A crash campaign: workers are killed, servers are flushed, restarted and cut off; in the end everything is right."""
