"""Runs of jobs: one job is one upstream call, and SQL is the source of truth for all of them.

The names in `__all__` are what a source needs, and what a program needs that collects with it.
"""

from typing import TYPE_CHECKING

from tidegate.core.exports import lazy_exports

if TYPE_CHECKING:
    from tidegate.engine.collection import Collection, open_source, open_sources
    from tidegate.engine.credentials.memory_tokens import Tokens
    from tidegate.engine.items import decode_with_items, read_items
    from tidegate.engine.source import Cursor, JobSpec, Reading, Source, Subject, Task, Verdict
    from tidegate.engine.upstream import Answer, Request
    from tidegate.engine.upstream.redirects import is_redirect
    from tidegate.primitives.gate import Allowance, CredentialLimits
    from tidegate.storage.documents.export import columns

__all__ = [
    "Allowance",
    "Answer",
    "Collection",
    "CredentialLimits",
    "Cursor",
    "JobSpec",
    "Reading",
    "Request",
    "Source",
    "Subject",
    "Task",
    "Tokens",
    "Verdict",
    "columns",
    "decode_with_items",
    "is_redirect",
    "open_source",
    "open_sources",
    "read_items",
]

__getattr__ = lazy_exports(
    __name__,
    {
        "tidegate.engine.collection": "Collection open_source open_sources",
        "tidegate.engine.credentials.memory_tokens": "Tokens",
        "tidegate.engine.items": "decode_with_items read_items",
        "tidegate.engine.source": "Cursor JobSpec Reading Source Subject Task Verdict",
        "tidegate.engine.upstream": "Answer Request",
        "tidegate.engine.upstream.redirects": "is_redirect",
        "tidegate.primitives.gate": "Allowance CredentialLimits",
        "tidegate.storage.documents.export.columns": "columns",
    },
)
