"""Page settings of a waiting room: its title, its destination and whether anonymous visitors may join."""

import sqlalchemy as sa

from tidegate.storage.sql.columns import exact_text
from tidegate.storage.sql.migrations import steps

revision = "0015"
down_revision = "0014"


def upgrade() -> None:
    steps.add_column("waiting_rooms", sa.Column("title", exact_text(200)))
    steps.add_column("waiting_rooms", sa.Column("entrance", exact_text(500)))
    steps.add_column("waiting_rooms", sa.Column("anybody", sa.Boolean))
