"""The page of keys lists every key that the code builds, and no other; and no key is two things at once."""

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

from tests.docs.pages import ROOT, section_of, table_rows
from tidegate.connections import build_context
from tidegate.settings import Settings
from tidegate.storage.valkey import Key, Valkey

PAGE = ROOT / "docs" / "keyspace.md"
SOURCE = ROOT / "src" / "tidegate"
NOT_KEYS = {("primitives/timers", "x"): "made only to learn how the keys of a unit begin"}
TYPES = {"string", "list", "hash", "set", "zset", "stream"}


def part_of(argument: ast.expr) -> str:
    """The argument of a `unit.key(...)` as a pattern, `<>` for each piece that varies."""
    if isinstance(argument, ast.Constant):
        return str(argument.value)
    if isinstance(argument, ast.JoinedStr):
        return "".join(part_of(piece) for piece in argument.values)
    return "<>"


def folder_of(module: Path) -> str:
    """Who builds a key: the folder of its module, or the module itself where that lies at the top."""
    folder = str(module.parent.relative_to(SOURCE))
    return module.stem if folder == "." else folder


def built_keys() -> set[tuple[str, str]]:
    """Every `….key(part)` in the source, with the folder it stands in."""
    return {
        (folder_of(module), part_of(node.args[0]))
        for module in SOURCE.rglob("*.py")
        for node in ast.walk(ast.parse(module.read_text()))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
        if node.func.attr == "key" and len(node.args) == 1
    }


def documented_keys() -> dict[tuple[str, str], str]:
    """Folder and part of every row, with the type that it says."""
    found: dict[tuple[str, str], str] = {}
    for folder in re.findall(r"^## ([a-z]+(?:/[a-z_]+)*)$", PAGE.read_text(), re.MULTILINE):
        for part, kind, *_ in table_rows(section_of(PAGE, folder)):
            key = (folder, re.sub(r"<\w+>", "<>", part.strip("`")))
            assert key not in found, f"{key} has two rows"
            found[key] = kind
    return found


def test_built_keys_and_documented_keys_are_equal():
    built, documented = built_keys(), documented_keys()

    assert NOT_KEYS.keys() <= built, "left out, but no longer built"
    assert sorted(built - NOT_KEYS.keys() - documented.keys()) == [], "built, but not on the page"
    assert sorted(documented.keys() - built) == [], "on the page, but built nowhere"


def test_every_row_has_a_type_and_the_effect_of_its_loss():
    rows = [row for folder, _ in documented_keys() for row in table_rows(section_of(PAGE, folder))]

    assert [row[0] for row in rows if len(row) != 5 or row[1] not in TYPES or not all(row)] == []


def keys_in(part: object, seen: set[int]) -> Iterator[tuple[str, Key]]:
    """Every key that an object of ours or one of its own holds, with the folder whose class it is."""
    if id(part) in seen or not type(part).__module__.startswith("tidegate."):
        return
    seen.add(id(part))
    owner = folder_of(SOURCE.parent / (type(part).__module__.replace(".", "/") + ".py"))
    for name, value in vars(part).items() if hasattr(part, "__dict__") else ():
        held = cast("dict[str, object]", value) if isinstance(value, dict) else {name: value}
        for inner in held.values():
            if isinstance(inner, Key):
                yield owner, inner
            else:
                yield from keys_in(inner, seen)


async def test_no_key_of_a_deployment_has_two_purposes(tmp_path: Path):
    """Primitives of one unit whose parts have the same name share a key, which the server refuses to the second."""
    types, kinds = documented_keys(), defaultdict[str, set[str]](set)
    valkey = Valkey("redis://localhost")  # connects when it is first used, which it is not
    parts = build_context(Settings(data_dir=tmp_path), valkey, cast("Any", None))
    try:
        for folder, key in keys_in(parts, set()):
            part = key.partition("}:")[2]
            fitting = {kind for (owner, pattern), kind in types.items() if owner == folder and fits(part, pattern)}
            kinds[key] |= fitting
    finally:
        await valkey.close()

    assert len(kinds) >= 15, "the search finds too little"
    assert {key: kind for key, kind in kinds.items() if len(kind) > 1} == {}


def fits(part: str, pattern: str) -> bool:
    return re.fullmatch(".+".join(map(re.escape, pattern.split("<>"))), part) is not None
