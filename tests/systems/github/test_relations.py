"""Foreign keys of the warehouse name columns that the tables have."""

import pytest

from tidegate.storage.documents.sync.table import SyncTable
from tidegate.systems.github.kinds import COLUMNS
from tidegate.systems.github.relations import relations


@pytest.mark.parametrize("document", COLUMNS)
def test_foreign_keys_name_columns_of_both_tables(document: str):
    tables = {kind: SyncTable.of("github", kind, columns).names for kind, columns in COLUMNS.items()}
    for relation in relations(document):
        assert set(relation.columns) <= set(tables[document])
        assert set(relation.keys) <= set(tables[relation.table])
        assert len(relation.columns) == len(relation.keys)


def test_documents_of_a_repository_have_a_relation_to_it():
    assert {each.table for each in relations("review")} == {"repository", "pull_request", "user"}
