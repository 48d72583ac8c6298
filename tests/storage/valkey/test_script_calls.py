"""What a script is told arrives as it was meant, and a server that forgot a script is taught it again."""

import asyncio
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.examples import examples
from tests.storage.valkey.conftest import ImportStub
from tidegate.core.errors import ContractBroken, ServerRefused, ValkeyUnavailable
from tidegate.storage.valkey import Valkey, run_together

ECHO = """
    ---@key place   string
    ---@arg text    str
    ---@arg raw     bytes
    ---@arg whole   int
    ---@arg part    float
    ---@arg batch   packed
    ---@arg now_ms  time
    -- Reply: everything, as Lua sees it
    return {place, text, raw, string.format('%.0f', whole), string.format('%.17g', part), cmsgpack.pack(batch), now_ms}
"""
ECHO_STUB = """
    @lua_script("echo.lua")
    async def echo(
        valkey: Valkey, *, place: Key, text: str, raw: bytes, whole: int, part: float, batch: list[Any],
        now_ms: int | None,
    ) -> list[Any]: ...
"""
COUNT = "---@key counter string\n---@arg by int\n-- Reply: the count\nreturn redis.call('INCRBY', counter, by)"
COUNT_STUB = """
    @lua_script("count.lua")
    async def count(valkey: Valkey, *, counter: Key, by: int) -> int: ...
"""


def unpacked(packed: bytes) -> Any:
    return msgspec.msgpack.decode(packed)


async def test_every_type_of_argument_is_passed_unchanged(import_stub: ImportStub, valkey: Valkey):
    echo = import_stub(ECHO_STUB, echo=ECHO).echo
    key = valkey.unit("calls").key("place")
    raw = bytes(range(256))
    batch = [["café 🌊", 2**52, -1, 0.5, True], {"a": "\x00|{}\r\n"}]

    reply = await echo(
        valkey,
        place=key,
        text="crème 🌊\r\n",
        raw=raw,
        whole=2**53 - 1,
        part=0.1,
        batch=batch,
        now_ms=1_800_000_000_123,
    )

    assert reply[:3] == [key.encode(), "crème 🌊\r\n".encode(), raw]
    assert (int(reply[3]), float(reply[4])) == (2**53 - 1, 0.1)
    assert unpacked(reply[5]) == batch
    assert reply[6] == 1_800_000_000_123


async def test_without_a_pinned_clock_a_script_uses_the_time_of_its_server(import_stub: ImportStub, valkey: Valkey):
    echo = import_stub(ECHO_STUB, echo=ECHO).echo
    key = valkey.unit("calls").key("place")

    async def moment() -> int:
        # Asked from a script, since only a script is sent to the node of a key.
        seconds, micros = await valkey.execute("EVAL", "return redis.call('TIME')", 1, key)
        return int(seconds) * 1000 + int(micros) // 1000

    before = await moment()
    reply = await echo(valkey, place=key, text="", raw=b"", whole=0, part=0.0, batch=[], now_ms=None)
    assert before <= reply[6] <= await moment()


async def test_a_batch_of_ten_thousand_is_one_argument(import_stub: ImportStub, valkey: Valkey):
    size = import_stub(
        """
        @lua_script("size.lua")
        async def size(valkey: Valkey, *, place: Key, batch: list[list[Any]]) -> list[Any]: ...
        """,
        size="---@key place string\n---@arg batch packed\nreturn {#batch, batch[#batch][1], batch[#batch][2]}",
    ).size
    batch = [[f"job-{n}", n] for n in range(10_000)]
    assert await size(valkey, place=valkey.unit("calls").key("place"), batch=batch) == [10_000, b"job-9999", 9999]


PLAIN = st.recursive(
    st.text(max_size=20) | st.integers(-(2**53) + 1, 2**53 - 1) | st.booleans() | st.floats(allow_nan=False),
    lambda inner: st.lists(inner, min_size=1, max_size=5) | st.dictionaries(st.text(min_size=1), inner, min_size=1),
    max_leaves=20,
)


@settings(
    max_examples=examples(20),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(batch=st.lists(PLAIN, max_size=5), text=st.text(), raw=st.binary(), whole=st.integers(-(2**53), 2**53))
def test_packed_values_are_passed_unchanged(
    import_stub: ImportStub, embedded_url: str, batch: list[Any], text: str, raw: bytes, whole: int
):
    echo = import_stub(ECHO_STUB, echo=ECHO).echo

    async def call() -> list[Any]:
        valkey = Valkey(embedded_url)
        try:
            key = valkey.unit("calls").key("place")
            return await echo(valkey, place=key, text=text, raw=raw, whole=whole, part=1.0, batch=batch, now_ms=0)
        finally:
            await valkey.close()

    reply = asyncio.run(call())
    assert reply[1:3] == [text.encode(), raw]
    assert int(reply[3]) == whole
    assert unpacked(reply[5]) == batch


async def test_two_versions_of_a_script_run_concurrently(import_stub: ImportStub, valkey: Valkey):
    old = import_stub(COUNT_STUB, count=COUNT).count
    new = import_stub(COUNT_STUB, count=COUNT.replace("by)", "2 * by)")).count
    same = import_stub(COUNT_STUB, count=COUNT).count
    counter = valkey.unit("versions").key("counter")

    assert old.sha != new.sha
    assert old.sha == same.sha
    assert await old(valkey, counter=counter, by=1) == 1
    assert await new(valkey, counter=counter, by=1) == 3
    assert await old(valkey, counter=counter, by=1) == 4


async def test_a_script_unknown_to_the_server_is_sent_again_and_runs_once(import_stub: ImportStub, valkey: Valkey):
    count = import_stub(COUNT_STUB, count=COUNT).count
    counter = valkey.unit("forgot").key("counter")
    for expected in (1, 2, 3):
        await valkey.execute("SCRIPT FLUSH")
        assert await count(valkey, counter=counter, by=1) == expected


async def test_pipelined_calls_answer_in_order_on_every_unit_although_scripts_were_flushed(
    import_stub: ImportStub, valkey: Valkey
):
    count = import_stub(COUNT_STUB, count=COUNT).count
    counters = [valkey.unit(f"together-{n}").key("counter") for n in range(30)]
    calls = [count.bind(counter=counter, by=n) for n, counter in enumerate(counters)]

    await valkey.execute("SCRIPT FLUSH")
    assert await run_together(valkey, calls) == list(range(30))
    assert await run_together(valkey, calls) == [2 * n for n in range(30)]
    assert await run_together(valkey, []) == []


async def test_when_one_of_many_calls_fails_the_others_are_still_executed(import_stub: ImportStub, valkey: Valkey):
    count = import_stub(COUNT_STUB, count=COUNT).count
    good, bad, last = (valkey.unit(f"one-of-many-{n}").key("counter") for n in range(3))
    await valkey.execute("SET", bad, "no number")

    with pytest.raises(Exception, match="not an integer"):
        await run_together(valkey, [count.bind(counter=key, by=1) for key in (good, bad, last)])

    assert [await valkey.execute("GET", key) for key in (good, last)] == [b"1", b"1"]


async def test_keys_of_two_units_are_refused_before_they_are_sent(import_stub: ImportStub, embedded: Valkey):
    both = import_stub(
        """
        @lua_script("both.lua")
        async def both(valkey: Valkey, *, left: Key, right: Key) -> int: ...
        """,
        both="---@key left string\n---@key right string\nreturn redis.call('EXISTS', left, right)",
    ).both
    here, there = embedded.unit("here"), embedded.unit("there")

    assert await both(embedded, left=here.key("left"), right=here.key("right")) == 0
    with pytest.raises(ContractBroken, match="not of one unit"):
        await both(embedded, left=here.key("left"), right=there.key("right"))


@pytest.mark.parametrize("name", ["a}b", "{a}", "a{b", "a|b", "", "a\nb", "x" * 513])
def test_unit_and_part_names_cannot_contain_a_hash_tag(name: str):
    valkey = Valkey("redis://localhost")
    with pytest.raises(ValueError, match=r"must"):
        valkey.unit(name)
    with pytest.raises(ValueError, match=r"must"):
        valkey.unit("fine").key(name)
    with pytest.raises(ValueError, match=r"must"):
        Valkey("redis://localhost", prefix=name)


async def test_all_keys_of_a_unit_are_in_one_slot(cluster_url: str):
    valkey = await Valkey.connect(cluster_url)
    try:
        for n in range(20):
            unit = valkey.unit(f"unit:{n} of 20")
            keys = [unit.key(part) for part in ("a", "b:c", "long " * 20)]
            assert await valkey.execute("EVAL", "return #KEYS", 3, *keys) == 3
    finally:
        await valkey.close()


async def test_errors_in_place_of_replies_are_mapped_too(import_stub: ImportStub, embedded: Valkey):
    count = import_stub(COUNT_STUB, count=COUNT).count
    counter = embedded.unit("full").key("counter")
    await count(embedded, counter=counter, by=1)
    await embedded.execute("CONFIG", "SET", "maxmemory", "1")
    try:
        with pytest.raises(ServerRefused, match="out of memory"):
            await run_together(embedded, [count.bind(counter=counter, by=1)])
    finally:
        await embedded.execute("CONFIG", "SET", "maxmemory", "0")
    assert not issubclass(ServerRefused, ValkeyUnavailable)
