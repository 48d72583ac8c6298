"""What a runbook tells somebody to do at 3 a.m. can be done: commands, statements, pages, addresses."""

import ast
import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest
import typer.main
from sqlalchemy import text

from tests.docs.pages import PAGES, ROOT, blocks_of, name_of, prose_of
from tests.docs.test_commands import run
from tidegate.app.cli import app
from tidegate.core.telemetry.catalogue import EVENTS
from tidegate.storage.sql import Database, Transaction

RUNBOOKS = [page for page in PAGES if page.parent.name == "runbooks" and page.stem != "README"]
SECTIONS = ["What it means", "What users notice", "Check first", "Usual causes, and what to do", "Resolved when"]
LINES = sorted(
    {line for page in RUNBOOKS for b in blocks_of(page) if b.language == "console" for line in b.text.splitlines()}
)
NAMED = sorted({name for page in RUNBOOKS for name in re.findall(r"`(tidegate [^`]+)`", prose_of(page))})
OURS = [line.removeprefix("$ ") for line in LINES if line.startswith("$ tidegate ")]
STATEMENTS = {block.place: block.text for page in RUNBOOKS for block in blocks_of(page) if block.language == "sql"}

RUN_ALL = """
import json, sys
from typer.testing import CliRunner
from tidegate.app.cli import app
from tidegate.core.errors import TidegateError
results = [CliRunner().invoke(app, arguments.split()[1:]) for arguments in sys.argv[1:]]
expected = (type(None), SystemExit, TidegateError)
print(json.dumps([[each.exit_code, f"{each.output}{each.exception!r}", isinstance(each.exception, expected)]
    for each in results]))
"""


def find(words: list[str]) -> tuple[Any, list[str]]:
    """The command that `words` begin with, and those that are left for it; raises what the command line would say."""
    # Typer's own types differ between its releases.
    command: Any = typer.main.get_command(app)
    context: Any = None
    while words and hasattr(command, "resolve_command"):
        context = command.make_context(command.name, list(words), parent=context)
        _, command, words = context.command.resolve_command(context, words)
    return command, words


@pytest.mark.parametrize("page", RUNBOOKS, ids=name_of)
def test_every_runbook_has_the_same_sections(page: Path):
    assert re.findall(r"^## (.+)$", page.read_text(), re.MULTILINE) == SECTIONS
    assert page.read_text().startswith(f"# {page.stem}\n")


def test_every_console_line_is_a_command():
    assert [line for line in LINES if not re.match(r"\$ (tidegate|curl) ", line)] == []
    assert len(OURS) > 20, "the search finds nothing any more"


@pytest.mark.parametrize("line", OURS)
def test_a_console_command_is_valid(line: str):
    command, words = find(line.split()[1:])

    command.make_context(command.name, words)


@pytest.mark.parametrize("line", NAMED)
def test_a_command_named_in_the_text_exists(line: str):
    """Its arguments may be left out there."""
    command, words = find(line.split()[1:])

    options = {name for each in command.params for name in each.opts}
    assert {word for word in words if word.startswith("--")} <= options


def test_invalid_commands_are_found():
    with pytest.raises(Exception, match="No such command"):
        find(["runs", "lst"])
    command, words = find(["runs", "list", "--stat", "active"])
    with pytest.raises(Exception, match="--stat"):
        command.make_context("list", words)


@pytest.mark.full
async def test_the_console_commands_run_in_an_empty_folder(tmp_path: Path):
    """Where nothing is set up some say so, and none crashes."""
    lines = [line for line in OURS if not re.search(r"\b[A-Z]{3,}\b", line)]  # CAMPAIGN is what one has to fill in

    code, out, err = await run(sys.executable, "-c", RUN_ALL, *lines, data_dir=tmp_path)

    assert code == 0, err
    for line, (exit_code, output, is_in_good_order) in zip(lines, json.loads(out), strict=True):
        assert exit_code in (0, 1), f"{line}: {output}"
        assert is_in_good_order, f"{line}: {output}"


@pytest.mark.every_server
async def test_the_sql_statements_run_on_every_database(database: Database):
    def read(tx: Transaction, statement: str) -> list[Any]:
        return list(tx.execute(text(statement)))

    assert len(STATEMENTS) > 8
    for place, statement in STATEMENTS.items():
        assert statement.startswith("SELECT "), f"{place}: it only looks"
        assert isinstance(await database.read(read, statement.strip().removesuffix(";")), list), place


def test_dashboard_pages_that_are_named_exist():
    named = {page for book in RUNBOOKS for page in re.findall(r"`(#/[a-z]*)`", book.read_text())}
    router = (ROOT / "src/tidegate/dashboard/files/js/router.js").read_text()

    assert named
    assert named - set(re.findall(r'href: "(#/[a-z]*)"', router)) == set()
    assert [book.name for book in RUNBOOKS if "On the dashboard: `#/" not in book.read_text().replace("\n", " ")] == []


def test_dotted_names_are_log_events_or_settings():
    settings = set(re.findall(r"^\| `([a-z_.]+)` \|", (ROOT / "docs/reference/settings.md").read_text(), re.MULTILINE))
    others = {"collection.run_ended", "prometheus.yml", "alerts.yml"}
    named = {name for book in RUNBOOKS for name in re.findall(r"`([a-z_]+(?:\.[a-z_]+)+)`", book.read_text())}

    assert named & EVENTS.keys()
    assert named & settings
    assert sorted(named - EVENTS.keys() - settings - others) == []


def test_request_paths_that_are_named_exist():
    asked = {path for line in LINES for path in re.findall(r"http://127\.0\.0\.1:8321(/\S+)", line)}
    asked |= {path for book in RUNBOOKS for path in re.findall(r"`(?:GET|POST|DELETE) (/\S+)`", book.read_text())}
    served: set[str] = set()
    for module in (ROOT / "src/tidegate").rglob("*.py"):
        for node in ast.walk(ast.parse(module.read_text())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.startswith("/v1/"):
                served.add(re.sub(r"{[^}]*}", "[^/]+", node.value))

    assert asked
    assert [path for path in asked if not any(re.fullmatch(each, path) for each in served)] == []
