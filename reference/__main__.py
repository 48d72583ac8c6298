"""`python -m reference [PAGE ...]`: generate the pages of docs/reference, or only the named ones."""

import asyncio
import sys

from reference.pages import FOLDER, PAGES


def main(wanted: list[str]) -> int:
    """Write them; print which have changed."""
    if unknown := set(wanted) - PAGES.keys():
        sys.stderr.write(f"there is no page {', '.join(sorted(unknown))}; there is {', '.join(PAGES)}\n")
        return 2
    for name in wanted or PAGES:
        file = FOLDER / f"{name}.md"
        text = asyncio.run(PAGES[name]())
        if not file.exists() or file.read_text() != text:
            file.write_text(text)
            sys.stdout.write(f"written: {file}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
