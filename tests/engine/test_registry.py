"""Sources of settings and distributions: known to commands and `tidegate up`, with stored credentials of their own."""

import asyncio
import os
import shlex
import sys
from asyncio.subprocess import PIPE
from pathlib import Path

import msgspec
import pytest
from examples.own_source import Bookshop, serve

from tests.docs.pages import blocks_of
from tests.engine.test_crash import until_all_complete
from tests.servers.migrated import migrated_folder
from tidegate.app import open_application
from tidegate.core.errors import InvalidSettings
from tidegate.engine.source import Subject
from tidegate.engine.source_plugin import GROUP, load_sources
from tidegate.engine.system import OpenCollection
from tidegate.settings import Settings

ROOT = Path(__file__).parents[2]
GUIDE = ROOT / "docs" / "guides" / "write-a-source.md"
BOOKSHOP = "examples.own_source:BookshopSource"


class Shell:
    """Runs commands of an installation that knows the bookshop."""

    def __init__(self, data_dir: Path, url: str, *, installed: Path | None = None) -> None:
        """The source is that of the distribution in `installed`, else that of the settings."""
        self._folder = data_dir.parent
        settings = {
            "TIDEGATE_DATA_DIR": str(data_dir),
            "BOOKSHOP_URL": url,
            "PYTHONPATH": f"{ROOT}:{installed or ROOT}",
        }
        if installed is None:
            settings["TIDEGATE_SOURCES"] = f'["{BOOKSHOP}"]'
        self._environment = {**os.environ, **settings, "SHOP_TOKEN": Bookshop.TOKEN}

    async def tidegate(self, *arguments: str, **more: str) -> tuple[int, str]:
        """The exit code and everything that was printed."""
        command = (sys.executable, "-m", "tidegate", *arguments)
        process = await asyncio.create_subprocess_exec(
            *command, stdout=PIPE, stderr=asyncio.subprocess.STDOUT, env={**self._environment, **more}, cwd=self._folder
        )
        printed, _ = await process.communicate()
        return process.returncode or 0, printed.decode()


def commands_of_the_guide() -> list[list[str]]:
    (block,) = [block for block in blocks_of(GUIDE) if block.language == "sh"]
    assert f"""TIDEGATE_SOURCES='["{BOOKSHOP}"]'""" in GUIDE.read_text()
    return [shlex.split(line)[1:] for line in block.text.splitlines() if line.startswith("tidegate ")]


def distribution_with_the_source(folder: Path) -> Path:
    """A folder as an installer leaves it: metadata with an entry point of the group `tidegate.sources`."""
    metadata = folder / "bookshop-1.0.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: bookshop\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(f"[{GROUP}]\nbookshop = {BOOKSHOP}\n")
    return folder


@pytest.mark.parametrize("is_installed", [False, pytest.param(True, marks=pytest.mark.full)])
async def test_a_source_of_the_settings_or_of_a_distribution_is_collected_and_exported_by_commands(
    tmp_path: Path, *, is_installed: bool
):
    shop = Bookshop({"maps": 12}, calls=100)
    runner, url = await serve(shop)
    data_dir = tmp_path / "data"
    data_dir.mkdir()
    installed = distribution_with_the_source(tmp_path / "installed") if is_installed else None
    shell = Shell(await migrated_folder(data_dir), url, installed=installed)

    refused = await shell.tidegate("collect", "--source", "bokshop", "corner")
    assert refused[0] != 0
    assert "bookshop, crawl, github" in refused[1]
    unserved = await shell.tidegate("collect", "--source", "bookshop", "corner")
    assert unserved[0] != 0
    assert "BOOKSHOP_TOKEN" in unserved[1]

    printed = ""
    for arguments in commands_of_the_guide():
        ended = await shell.tidegate(*arguments)
        assert ended[0] == 0, ended[1]
        printed += ended[1]
    assert "completed: 3 of 3 pages, 12 documents" in printed
    assert "calls      3\n" in printed
    out = tmp_path / "books"
    (file,) = msgspec.json.decode((out / "manifest.json").read_bytes())["files"]
    assert (file["kind"], file["documents"]) == ("book", 12)
    assert {"isbn", "price"} <= {column["name"] for column in file["columns"]}
    await runner.cleanup()


async def test_stored_credentials_of_a_source_are_listed_replaced_and_removed(tmp_path: Path):
    data_dir = tmp_path / "data"
    data_dir.mkdir()
    shell = Shell(await migrated_folder(data_dir), "http://127.0.0.1:9")
    store = ("credentials", "add", "counter", "--source", "bookshop", "--from-env", "SHOP_TOKEN")
    for token in ("mistyped", "right"):
        ended = await shell.tidegate(*store, SHOP_TOKEN=token)
        assert ended[0] == 0, ended[1]

    listed = await shell.tidegate("credentials", "list")
    assert ("bookshop" in listed[1], listed[1].count("counter")) == (True, 1)
    removed = await shell.tidegate("credentials", "remove", "counter", "--source", "bookshop")
    assert removed[0] == 0, removed[1]
    assert "There are no credentials" in (await shell.tidegate("credentials", "list", "--source", "bookshop"))[1]


async def test_every_process_of_the_installation_executes_jobs_of_a_source_from_the_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    runner, url = await serve(Bookshop({"maps": 12}, calls=100))
    monkeypatch.setenv("BOOKSHOP_URL", url)
    monkeypatch.setenv("BOOKSHOP_TOKEN", Bookshop.TOKEN)
    settings = Settings(data_dir=await migrated_folder(tmp_path), sources=(BOOKSHOP,))
    async with open_application(settings, ["sources"]) as application:
        sources = application.find(OpenCollection)
        assert sources is not None
        run_id = await sources.collection.begin("bookshop", Subject(user_id="corner", login="corner"))
        async with application.process().running():
            await until_all_complete(application.context.database, [run_id])
    await runner.cleanup()


def test_an_invalid_source_is_reported_with_its_setting():
    with pytest.raises(InvalidSettings, match=r"TIDEGATE_SOURCES: examples.own_source:Bookshop"):
        load_sources(["examples.own_source:Bookshop"])
    with pytest.raises(InvalidSettings, match="another source has the name 'github'"):
        load_sources(["tidegate.systems.github:GithubSource"], taken=["github"])
