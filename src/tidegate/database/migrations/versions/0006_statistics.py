"""What is known of users, computed from what was collected."""

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    pass
