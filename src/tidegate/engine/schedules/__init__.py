"""When runs begin without a request: by the clock, or by a trigger from outside."""
