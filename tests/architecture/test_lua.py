"""Every Lua file has a contract and somebody who calls it."""

import ast
import re
from pathlib import Path

import pytest

from tidegate.storage.valkey.scripts import Header, parse_header

SOURCE = Path(__file__).parents[2] / "src"
SHARED = SOURCE / "tidegate/storage/valkey/includes"
FILES = sorted(SOURCE.rglob("*.lua"))
INCLUDES = [path for path in FILES if path.parent == SHARED or path.name.startswith("_")]
SCRIPTS = [path for path in FILES if path not in INCLUDES]

LUA_WORDS = frozenset(
    re.findall(
        r"\w+",
        """and break do else elseif end false for function if in local nil not or repeat return then true until while
        redis cmsgpack struct math string table unpack ipairs pairs tonumber tostring type error""",
    )
)


def name_of(path: Path) -> str:
    return str(path.relative_to(SOURCE / "tidegate"))


def header_of(path: Path) -> Header:
    return parse_header(path, path.read_text())


def test_lua_scripts_are_found():
    assert SCRIPTS


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_a_lua_file_starts_with_a_description(path: Path):
    assert path.read_text().startswith("-- ")


@pytest.mark.parametrize("path", SCRIPTS, ids=name_of)
def test_a_script_declares_its_keys_and_its_replies(path: Path):
    header = header_of(path)

    assert header.keys, "a cluster cannot place a script without keys"
    assert header.has_reply


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_keys_and_arguments_are_used_by_name(path: Path):
    """Keys and arguments have the names that the header gives them; there is no second way to them."""
    code = [line.partition("--")[0] for line in path.read_text().splitlines()]

    assert [line for line in code if "KEYS[" in line or "ARGV[" in line] == []


def included_by(path: Path) -> list[Path]:
    """The file with everything that it includes, directly or not."""
    found, header = [path], header_of(path)
    for name in header.includes:
        beside = path.parent / f"_{name}.lua"
        found += included_by(beside if beside.exists() else SHARED / f"{name}.lua")
    return found


def words_of(path: Path) -> tuple[set[str], set[str]]:
    """The names that a Lua file declares, whatever their scope, and those that it uses."""
    code = re.sub(r"--[^\n]*|'(?:\\\\.|[^'\\\\])*'", " ", path.read_text())
    lists = re.findall(r"\blocal (?!function\b)([\w, ]+)|\bfunction\s*\w*\(([^)]*)\)|\bfor ([\w, ]+?) (?:=|in\b)", code)
    declared = set(re.findall(r"\w+", " ".join(" ".join(each) for each in lists)))
    declared |= set(re.findall(r"\bfunction (\w+)", code))
    fields = r"(?<=[{,\n])\s*\w+ =(?!=)"
    used = set(re.findall(r"(?<![\w.])(?!\d)\w+", re.sub(fields, " ", code)))
    return declared, used - LUA_WORDS


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_a_lua_file_uses_only_names_defined_in_it_or_its_includes(path: Path):
    """An include that used a local of the script would fail only when that line runs."""
    header = header_of(path)
    known = header.keys.keys() | header.args.keys() | {header.keyset}
    known |= {name for part in included_by(path) for name in words_of(part)[0]}

    assert words_of(path)[1] - known == set()


def test_every_script_has_one_stub(modules: dict[str, ast.Module]):
    bound = [
        SOURCE / Path(module).parent / str(node.args[0].value)
        for module, tree in modules.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == "lua_script"
        and node.args
        and isinstance(node.args[0], ast.Constant)
    ]

    assert sorted(map(name_of, bound)) == sorted(map(name_of, SCRIPTS))


def test_every_include_is_used():
    included: set[Path] = set()
    for path in FILES:
        header = header_of(path)
        for name in [*header.includes, *([header.keyset] if header.keyset else [])]:
            beside = path.parent / f"_{name}.lua"
            included.add(beside if beside.exists() else SHARED / f"{name}.lua")

    assert sorted(map(name_of, set(INCLUDES) - included)) == []
    assert sorted(map(name_of, included - set(INCLUDES))) == [], "included, but not there"
