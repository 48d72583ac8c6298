"""Data of a rationed upstream, kept fresh: readers never wait for it, and its limits are never broken."""
