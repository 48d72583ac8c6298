"""Whatever a page shows somebody typing can be typed: our commands take these words, and the addresses are there.

That they do what the page says is tested where the page is played, as in tests/guides.
"""

import re
import shlex
from typing import Any

import typer.main

from tests.docs.pages import ROOT, Block, all_blocks
from tidegate.app.cli import app

SERVICE = "http://127.0.0.1:8321"


def commands_in(block: Block) -> list[list[str]]:
    """What somebody types there; files that are read and what is explained beside it are left out."""
    lines = re.findall(r"^\$ (.+)$", block.text, re.MULTILINE)
    return [shlex.split(re.split(r" < | +# ", line)[0]) for line in lines]


TYPED = [(block.place, words) for block in all_blocks("console") for words in commands_in(block)]
OURS = sorted({(place, *words[1:]) for place, words in TYPED if words[0].rpartition("/")[2] == "tidegate"})
ASKED = sorted({(place, *words[1:]) for place, words in TYPED if words[0] == "curl"})
OPERATIONS = re.findall(r"^### ([A-Z]+) (/\S*)$", (ROOT / "docs/reference/http.md").read_text(), re.MULTILINE)


def test_the_command_line_accepts_every_documented_command():
    refused = dict[str, str]()
    for place, *words in OURS:
        try:
            parse(typer.main.get_command(app), words)
        except Exception as error:
            refused[f"{place}: {shlex.join(words)}"] = repr(error)

    assert len(OURS) > 50, "the search finds too little"
    assert refused == {}


def parse(command: Any, words: list[str]) -> None:
    """Have the words read, and nothing done."""
    if hasattr(command, "load"):
        command = command.load()
    if hasattr(command, "list_commands"):
        command.list_commands(typer.Context(command))  # with those of the systems
    inner: dict[str, Any] = getattr(command, "commands", {})
    if inner and words:
        parse(inner[words[0]], words[1:])
    else:
        command.make_context(command.name, list(words))


def test_every_documented_request_path_is_in_the_reference():
    unknown = list[str]()
    for place, *words in ASKED:
        [url] = [word for word in words if word.startswith("http://")]
        path = url.removeprefix(SERVICE).partition("?")[0]
        method = words[words.index("-X") + 1] if "-X" in words else "POST" if "-d" in words else "GET"
        if url.startswith(SERVICE) and not any(method == each and fits(path, pattern) for each, pattern in OPERATIONS):
            unknown.append(f"{place}: {method} {path}")

    assert len(ASKED) > 30, "the search finds too little"
    assert unknown == []


def fits(path: str, pattern: str) -> bool:
    return re.fullmatch("[^/]+".join(map(re.escape, re.split(r"{\w+}", pattern))), path) is not None
