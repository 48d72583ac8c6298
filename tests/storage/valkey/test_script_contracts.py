"""A Lua file and its stub that drifted apart never start."""

import pytest
from redis.exceptions import ResponseError

from tests.storage.valkey.conftest import ImportStub
from tidegate.core.errors import ContractBroken
from tidegate.storage.valkey import Valkey
from tidegate.storage.valkey.scripts import all_scripts

LUA = """
    -- Count up.
    ---@key counter  string  how often
    ---@arg by       int
    ---@arg now_ms   time
    -- Reply: the count
    return redis.call('INCRBY', counter, by)
"""


def stub_of(parameters: str) -> str:
    return f"""
    @lua_script("count.lua")
    async def count(valkey: Valkey, {parameters}) -> int: ...
    """


GOOD = "*, counter: Key, by: int, now_ms: int | None"


def test_a_stub_that_matches_the_header_is_accepted(import_stub: ImportStub):
    script = import_stub(stub_of(GOOD), count=LUA).count
    assert script in all_scripts()
    assert script.header.keys == {"counter": "string"}
    assert script.header.args == {"by": "int", "now_ms": "time"}
    assert script.header.has_reply


@pytest.mark.parametrize(
    ("parameters", "complaint"),
    [
        ("*, counter: Key, by: int", "declares .* its stub"),
        ("*, counter: Key, by: int, now_ms: int | None, more: int", "declares .* its stub"),
        ("*, counter: Key, times: int, now_ms: int | None", "declares .* its stub"),
        ("*, by: int, counter: Key, now_ms: int | None", "declares .* its stub"),
        ("*, counter: Key, now_ms: int | None, by: int", "declares .* its stub"),
        ("*, counter: str, by: int, now_ms: int | None", "'counter' is key in Lua"),
        ("*, counter: Key, by: str, now_ms: int | None", "'by' is int in Lua"),
        ("*, counter: Key, by: Key, now_ms: int | None", "'by' is int in Lua"),
        ("*, counter: Key, by: int | None, now_ms: int | None", "'by' is int in Lua"),
        ("*, counter: Key, by: int, now_ms: int", "'now_ms' is time in Lua"),
        ("counter: Key, *, by: int, now_ms: int | None", "'counter'.* must be keyword-only"),
    ],
)
def test_a_stub_that_differs_from_the_header_is_refused_at_import(
    import_stub: ImportStub, parameters: str, complaint: str
):
    with pytest.raises(ContractBroken, match=f"count.lua.*{complaint}"):
        import_stub(stub_of(parameters), count=LUA)


@pytest.mark.parametrize(
    ("lua", "complaint"),
    [
        ("---@key counter\nreturn 1", "'counter' has no known type: None"),
        ("---@key counter pile\nreturn 1", "'counter' has no known type: 'pile'"),
        ("---@key counter string\n---@arg by number\nreturn 1", "'by' has no known type: 'number'"),
        ("---@key counter string\n---@argument by int\nreturn 1", "cannot read"),
        ("---@arg by int\nreturn 1", "at least one key"),
        ("---@key counter string\n---@key counter string\nreturn 1", "'counter' is declared twice"),
        ("---@key counter string\n---@arg counter int\nreturn 1", "'counter' is declared twice"),
        ("---@key counter string\n\n---@arg by int\nreturn 1", "below the header stands '---@arg by int'"),
        ("---@key counter string\nlocal x = 1\n---@include ring\nreturn 1", "below the header"),
        ("---@keys many string\n---@key counter string\nreturn 1", "'many' must be the last of the keys"),
    ],
)
def test_an_invalid_header_is_refused_at_import(import_stub: ImportStub, lua: str, complaint: str):
    with pytest.raises(ContractBroken, match=f"count.lua.*{complaint}"):
        import_stub(stub_of("*, counter: Key, by: int"), count=lua)


def test_a_list_of_keys_is_declared_as_a_list(import_stub: ImportStub):
    lua = "---@key counter string\n---@keys others hash\nreturn #others"
    assert import_stub(stub_of("*, counter: Key, others: list[Key]"), count=lua).count.header.many == "others"
    with pytest.raises(ContractBroken, match="'others' is keys in Lua"):
        import_stub(stub_of("*, counter: Key, others: Key"), count=lua)


async def test_scripts_share_a_key_set_that_is_declared_once(import_stub: ImportStub, embedded: Valkey):
    script = import_stub(
        stub_of("*, counter: Key, other: Key, by: int"),
        count="---@keyset keys\n---@arg by int\nreturn {keys.counter, keys.other, by}",
        _keys="-- Shared.\n---@key counter string\n---@key other hash\n",
    ).count
    unit = embedded.unit("keyset")
    counter, other = unit.key("counter"), unit.key("other")

    assert script.header.keys == {"counter": "string", "other": "hash"}
    assert await script(embedded, counter=counter, other=other, by=3) == [counter.encode(), other.encode(), 3]


def test_an_unknown_key_set_is_refused_at_import(import_stub: ImportStub):
    with pytest.raises(ContractBroken, match="no set of keys 'keys'"):
        import_stub(stub_of("*, counter: Key"), count="---@keyset keys\nreturn 1")


@pytest.mark.parametrize("scalar", ["str", "bytes", "int", "float", "int | None", "Key"])
def test_a_packed_argument_is_a_batch_and_not_a_single_value(import_stub: ImportStub, scalar: str):
    lua = "---@key counter string\n---@arg batch packed\nreturn #batch"
    with pytest.raises(ContractBroken, match="'batch' is packed in Lua"):
        import_stub(stub_of(f"*, counter: Key, batch: {scalar}"), count=lua)


def test_a_stub_without_its_file_is_refused_at_import(import_stub: ImportStub):
    with pytest.raises(ContractBroken, match=r"there is no script 'count.lua'"):
        import_stub(stub_of(GOOD))


def test_an_unknown_include_is_refused_at_import(import_stub: ImportStub):
    with pytest.raises(ContractBroken, match="no include 'nowhere'"):
        import_stub(stub_of("*, counter: Key"), count="---@key counter string\n---@include nowhere\nreturn 1")


@pytest.mark.parametrize("declared", ["---@key counter string", "---@arg by int"])
def test_an_include_that_declares_keys_or_arguments_is_refused_at_import(import_stub: ImportStub, declared: str):
    with pytest.raises(ContractBroken, match=r"_bump\.lua: an include gets keys and values as parameters"):
        import_stub(
            stub_of("*, counter: Key, by: int"),
            count="---@key counter string\n---@arg by int\n---@include bump\nreturn 1",
            _bump=f"{declared}\nlocal function bump() return 1 end",
        )


@pytest.mark.parametrize(
    "line",
    [
        "local count = 0",
        "local cache, seen = {}, {}",
        "local NAMES = {}",
        "count = 0",
        "redis.call('PING')",
        "  local indented = 1",
        "function global() end",
    ],
)
def test_an_include_that_defines_more_than_functions_and_constants_is_refused_at_import(
    import_stub: ImportStub, line: str
):
    functions = "local MOST, TEXT = 2 ^ 3, 'x'\nlocal function bump()\n  local count = 1\n  return count\nend\n"
    lua = "---@key counter string\n---@include bump\nreturn bump()"
    import_stub(stub_of("*, counter: Key"), count=lua, _bump=functions)
    with pytest.raises(ContractBroken, match=r"_bump\.lua: an include may define only functions and constants"):
        import_stub(stub_of("*, counter: Key"), count=lua, _bump=functions + line)


async def test_an_include_cannot_access_locals_of_the_script(import_stub: ImportStub, embedded: Valkey):
    script = import_stub(
        stub_of("*, counter: Key"),
        count="---@key counter string\n---@include bump\nreturn bump()",
        _bump="local function bump() return redis.call('INCR', counter) end",
    ).count
    with pytest.raises(ResponseError, match="nonexistent global variable 'counter'"):
        await script(embedded, counter=embedded.unit("includes").key("counter"))


def test_includes_that_form_a_cycle_are_refused_at_import(import_stub: ImportStub):
    with pytest.raises(ContractBroken, match="form a cycle"):
        import_stub(
            stub_of("*, counter: Key"),
            count="---@key counter string\n---@include left\nreturn 1",
            _left="---@include right\nlocal L = 1",
            _right="---@include left\nlocal R = 1",
        )


async def test_nested_includes_come_before_their_users_and_only_once(import_stub: ImportStub, embedded: Valkey):
    script = import_stub(
        stub_of("*, counter: Key"),
        count="""
            ---@key counter string
            ---@include outer
            ---@include inner
            return outer(counter) + inner(counter)
        """,
        _outer="---@include inner\nlocal function outer(counter) return 10 * inner(counter) end\n",
        _inner="local function inner(counter) return redis.call('INCR', counter) end\n",
    ).count
    assert script.source.count("local function inner") == 1
    assert await script(embedded, counter=embedded.unit("includes").key("counter")) == 12


async def test_an_include_beside_the_script_takes_precedence_over_a_shared_one(
    import_stub: ImportStub, embedded: Valkey
):
    script = import_stub(
        stub_of("*, counter: Key"),
        count="---@key counter string\n---@include send_wakeup\nreturn send_wakeup()",
        _send_wakeup="local function send_wakeup() return 'ours' end",
    ).count
    assert await script(embedded, counter=embedded.unit("includes").key("counter")) == b"ours"
