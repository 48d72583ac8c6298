"""Answers that could not be written yet."""

revision = "0008"
down_revision = "0007"


def upgrade() -> None:
    pass
