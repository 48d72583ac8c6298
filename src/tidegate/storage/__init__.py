"""Storage: Valkey or Redis, SQL databases, and document stores."""
