"""Where data is kept: Valkey or Redis, SQL databases, and document stores."""
