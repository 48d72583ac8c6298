"""Settings of the document store: where collected items are stored."""

from pydantic import BaseModel, Field


class DocumentSettings(BaseModel, frozen=True, extra="forbid", use_attribute_docstrings=True):
    """Settings of the document store: where collected items are stored."""

    url: str | None = Field(default=None, repr=False, pattern=r"^mongodb(\+srv)?://.+")
    """A MongoDB, `mongodb://host/name` or `mongodb+srv://…`; else the database that holds everything else."""
