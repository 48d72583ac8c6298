"""What the repository must not carry."""

import re
import subprocess
from pathlib import Path

import pytest

FORBIDDEN = {
    # Each pattern is written so that it does not match itself.
    "a path of somebody's machine": r"/wor[k]/|/far[m]/|/roo[t]/|/hom[e]/\w|/User[s]/\w|/tmp/brie[f]",
    "the host of a registry": (
        r"pythonhoste[d]|pypi\.or[g]/simple|registry\.npmj[s]|deb\.debia[n]|repo1?\.mave[n]|proxy\.golan[g]"
    ),
    "a mark of unfinished work": r"\b(?:TOD[O]|FIXM[E]|XX[X])\b",
    "a conflict that was not resolved": r"(?m)^(?:<{7}|>{7}) ",
}
EXTERNAL = {"LICENSE", "simulators/LICENSE", "src/tidegate/http/pages/vendor/swagger-ui-bundle.js"}


@pytest.fixture(scope="session")
def texts(root: Path) -> dict[str, str]:
    """Every file that is in the repository or would be added to it; where there is no git, the source itself."""
    listing = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=root,
        capture_output=True,
        text=True,
        check=False,
    )
    names = listing.stdout.splitlines() if listing.returncode == 0 else []
    paths = [root / name for name in names] or [
        path
        for source in ("src", "simulators")
        for path in (root / source).rglob("*.*")
        if "__pycache__" not in path.parts
    ]
    found: dict[str, str] = {}
    for path in paths:
        try:
            found[str(path.relative_to(root))] = path.read_text()
        except (UnicodeDecodeError, FileNotFoundError, IsADirectoryError):
            continue  # not text, or deleted and not yet committed
    return found


@pytest.mark.parametrize("what", FORBIDDEN)
def test_the_repository_contains_no_forbidden_files_or_texts(what: str, texts: dict[str, str]):
    pattern = re.compile(FORBIDDEN[what])

    found = [
        f"{name}:{number}: {line.strip()[:100]}"
        for name, text in texts.items()
        if name not in EXTERNAL and pattern.search(text)
        for number, line in enumerate(text.splitlines(), 1)
        if pattern.search(line)
    ]

    assert found == []
