"""How long records of admissions are kept."""

from datetime import timedelta

from sqlalchemy import func, select

from tidegate.runtime.retention import RetentionRule, TableRule
from tidegate.storage.sql import Database
from tidegate.systems.waiting_room.tables import room_tokens


def rules(database: Database, tokens_kept: timedelta) -> list[RetentionRule]:
    """Admissions that are over.

    They tell that a place of the line was used, which matters while a pass of its owner can be valid: some minutes. The
    last admission of a room stays, so that numbers of admissions go on from it.
    """
    token, other = room_tokens.c, room_tokens.alias("other")
    last = select(func.max(other.c.admission)).where(other.c.room == token.room).scalar_subquery()
    return [
        TableRule(
            database,
            room_tokens,
            tokens_kept,
            lambda before: [token.active_user.is_(None), token.ended_at < before],
            unused=[token.admission < last],
        )
    ]
