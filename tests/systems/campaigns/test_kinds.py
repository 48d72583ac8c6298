"""Kinds of one's own: a class named in the settings."""

import pytest

from tests.systems.campaigns.worker_harness import Picky
from tidegate.core.errors import InvalidArgument, InvalidSettings, NotFound
from tidegate.systems.campaigns.kinds import FirstCome, Kinds, load_kind


class Unnamed:
    pass


class Falls:
    def __init__(self) -> None:
        raise RuntimeError("it cannot be made")


class Misnamed(Picky):
    kind = "no such name"


def test_a_kind_is_found_by_its_name():
    kinds = Kinds([FirstCome(), load_kind("tests.systems.campaigns.worker_harness:Picky")])
    assert kinds.names == ["FIRST_COME", "PICKY"]
    assert isinstance(kinds.get("PICKY"), Picky)
    with pytest.raises(NotFound, match="FIRST_COME, PICKY"):
        kinds.get("OTHER")


@pytest.mark.parametrize(
    ("place", "told"),
    [
        ("tests.systems.campaigns.nowhere:Picky", "no module is called tests.systems.campaigns.nowhere"),
        ("tests.systems.campaigns.worker_harness:Nothing", "AttributeError"),
        ("tests.systems.campaigns.test_kinds:Unnamed", "it has no kind, apply"),
        ("tests.systems.campaigns.test_kinds:Falls", "RuntimeError: it cannot be made"),
    ],
)
def test_a_kind_that_cannot_be_loaded_is_reported_with_the_reason(place: str, told: str):
    with pytest.raises(InvalidSettings, match=told) as refused:
        load_kind(place)
    assert place in str(refused.value)


def test_a_kind_name_is_valid_and_unique():
    with pytest.raises(InvalidSettings, match="have one name"):
        Kinds([Picky(), Picky()])
    with pytest.raises(InvalidArgument):
        Kinds([Misnamed()])
