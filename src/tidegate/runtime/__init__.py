"""Services that live long: the supervisor and what it keeps running."""
