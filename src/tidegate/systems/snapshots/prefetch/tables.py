"""What was asked for by the clock."""

from sqlalchemy import BigInteger, Column, Date, Float, SmallInteger, Table

from tidegate.storage.sql.columns import TABLE_OPTIONS
from tidegate.storage.sql.schema import metadata

prefetch_hours = Table(
    "prefetch_hours",
    metadata,
    Column("day", Date, primary_key=True),
    Column("hour", SmallInteger, primary_key=True, autoincrement=False),
    Column("spent", BigInteger, nullable=False),
    Column("price", Float),
    **TABLE_OPTIONS,
)
"""The calls of each hour, by the clocks of the settings' time zone; and the price of a call, when it last changed."""
