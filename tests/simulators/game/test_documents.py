"""What is sent: 300 KB of JSON, the same packed and plain, and a part of it that is worth keeping."""

import gzip
import json
import zlib
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some
from isal import isal_zlib

from tests.examples import examples
from tests.simulators.game.client import SMALL
from tidegate_simulators.game import KEPT_FIELDS, State, World, WorldShape, extract_kept
from tidegate_simulators.game.documents import Documents
from tidegate_simulators.game.packing import shifted
from tidegate_simulators.game.sections import FIELDS, section

WORLD = World(SMALL)
DOCUMENTS = Documents(WORLD)
SUBJECTS = some.integers(1, 1_000)
VERSIONS = some.integers(0, 1 << 40)


def plain(state: State, served_ms: int = 0) -> bytes:
    pieces, size = DOCUMENTS.plain(state, served_ms)
    whole = b"".join(pieces)
    assert len(whole) == size
    return whole


def packed(state: State, served_ms: int = 0) -> bytes:
    pieces, size = DOCUMENTS.gzipped(state, served_ms)
    whole = b"".join(pieces)
    assert len(whole) == size
    return whole


@given(subject=SUBJECTS, version=VERSIONS, served_ms=some.integers(0, 1 << 43))
@settings(max_examples=examples(30))
def test_the_compressed_document_equals_the_plain_one(subject: int, version: int, served_ms: int):
    state = WORLD.at_version(subject, version)

    assert gzip.decompress(packed(state, served_ms)) == plain(state, served_ms)


@pytest.mark.parametrize("library", [zlib, isal_zlib])
def test_any_client_reads_the_compressed_document_as_one_member(library: object):
    state = WORLD.at_version(5, 3)
    inflater = library.decompressobj(31)  # pyright: ignore[reportAttributeAccessIssue]
    text = b"".join(inflater.decompress(packed(state)[start : start + 1_000]) for start in range(0, 30_000, 1_000))

    assert text == plain(state)
    assert inflater.eof
    assert inflater.unused_data == b""


def test_a_damaged_stream_is_detected():
    whole = bytearray(packed(WORLD.at_version(5, 3)))
    whole[-5] ^= 1

    with pytest.raises(gzip.BadGzipFile, match="CRC"):
        gzip.decompress(whole)


def test_by_default_an_answer_has_300_kb_of_which_17_are_stored():
    documents = Documents(World())
    state = World().at_version(5, 3)
    whole, packed_size = b"".join(documents.plain(state)[0]), documents.gzipped(state)[1]
    kept = json.dumps(extract_kept(whole), ensure_ascii=False, separators=(",", ":")).encode()

    assert len(whole) == 300_000
    assert len(kept) == pytest.approx(17_000, rel=0.05)
    assert 30_000 < packed_size < 75_000


@given(subject=SUBJECTS, version=VERSIONS, times=some.tuples(some.integers(0, 1 << 43), some.integers(0, 1 << 43)))
@settings(max_examples=examples(20))
def test_the_stored_part_depends_on_the_version_and_not_on_the_time(subject: int, version: int, times: tuple[int, int]):
    state = WORLD.at_version(subject, version)
    first, second = (plain(state, served_ms) for served_ms in times)

    assert extract_kept(first) == extract_kept(second) == DOCUMENTS.kept(state)
    assert (first == second) == (times[0] == times[1]), "a hash over everything tells nothing"


def test_every_version_of_every_character_is_different():
    kept = [json.dumps(DOCUMENTS.kept(WORLD.at_version(s, v))) for s in range(1, 8) for v in range(8)]

    assert len(set(kept)) == len(kept)


def test_changes_affect_everything_stored_except_the_identity():
    kept = [DOCUMENTS.kept(WORLD.at_version(5, version)) for version in range(12)]
    changing = {field for field in KEPT_FIELDS if any(one[field] != kept[0][field] for one in kept)}

    assert set(KEPT_FIELDS) - changing == {"id", "name", "realm"}
    for one, other in pairwise(kept):
        assert one["version"] != other["version"]
        assert one["profile"] != other["profile"]
        assert one["stats"] != other["stats"]


def test_the_stored_part_is_spread_over_the_document():
    fields = list(json.loads(plain(WORLD.at_version(5, 3))))
    kept = [field in KEPT_FIELDS for field in fields]

    assert set(KEPT_FIELDS) < set(fields)
    assert sum(one != other for one, other in pairwise(kept)) >= 4


@given(first=some.binary(max_size=300), second=some.binary(max_size=300), third=some.binary(max_size=300))
@settings(max_examples=examples(30))
def test_contributions_add_up_to_the_checksum_of_the_document(first: bytes, second: bytes, third: bytes):
    parts = [(first, len(second + third)), (second, len(third)), (third, 0)]
    checksum = 0
    for part, following in parts:
        checksum ^= shifted(zlib.crc32(part), following)

    assert checksum == zlib.crc32(first + second + third)


@given(field=some.sampled_from(FIELDS), variant=some.integers(0, 99), size=some.integers(400, 5_000))
@settings(max_examples=examples(30))
def test_a_section_has_exactly_its_configured_length(field: str, variant: int, size: int):
    made = section(1, field, variant, size)

    assert len(made) == size
    assert isinstance(json.loads(b"{" + made[1:] + b"}")[field], list)


@pytest.mark.parametrize("size", [12_000, 13_001, 77_777])
def test_documents_of_other_sizes_are_valid_too(size: int):
    world = World(WorldShape(missing=0, body_bytes=size, kept_bytes=8_000))
    state, documents = world.at_version(9, 9), Documents(world)
    whole = b"".join(documents.plain(state)[0])

    assert len(whole) == size
    assert gzip.decompress(b"".join(documents.gzipped(state)[0])) == whole
    assert set(extract_kept(whole)) == set(KEPT_FIELDS)
