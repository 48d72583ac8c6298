"""The table of the link checker. Its name begins with the name of the system."""

from sqlalchemy import Column, Integer, MetaData, String, Table

metadata = MetaData()
links = Table(
    "link_checker_links",
    metadata,
    Column("url", String(500), primary_key=True),
    # Status of the last answer; NULL: not checked yet; 0: no answer.
    Column("status", Integer),
)
