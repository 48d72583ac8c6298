"""Results, for people."""

from collections.abc import Sequence

from scenarios.scenario import Check, Result

_QUIET = 0.1
"""Where others use no more of the machine than this, times are worth something."""

Row = tuple[str, str, str, str, str, str]


def lines(result: Result) -> str:
    """One result as soon as it is there, with all that speaks against it."""
    cost = f"{result.took_s:.0f} s, {result.cost.cpu_s:.1f} s of CPU"
    if result.cost.others_share > _QUIET:
        cost += f"; others used {result.cost.others_share:.0%} of this machine"
    head = f"{result.number:>2} {result.on:<7} {verdict(result):<7} {result.title} ({cost})"
    against = [f"{each.what}: {each.told}, target {each.wanted}" for each in result.checks if not each.passed]
    against += (result.missing or result.trouble or "").splitlines()
    return "\n".join([head, *(f"     {each}" for each in against)])


def verdict(result: Result) -> str:
    """In one word."""
    if result.missing is not None:
        return "NOT RUN"
    return "pass" if result.passed else "FAIL"


def table(results: Sequence[Result]) -> str:
    """All of them, one line for each figure."""
    rows: list[Row] = [("#", "on", "what", "figure", "target", "")]
    for result in results:
        rows += _rows(result)
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    failed = sum(not result.passed for result in results)
    played = sum(result.missing is None for result in results)
    took_s = sum(result.took_s for result in results)
    others = max((result.cost.others_share for result in results), default=0)
    busy = f"; others used up to {others:.0%} of this machine meanwhile" if others > _QUIET else ""
    text = [_line(row, widths) for row in rows]
    return "\n".join([*text, "", f"{played} played in {took_s:.0f} s, {failed} failed{busy}"])


def _rows(result: Result) -> list[Row]:
    rows: list[Row] = [(str(result.number), result.on, result.title, "", "", verdict(result))]
    rows += [("", "", f"  {each.what}", each.told, each.wanted, _word(each)) for each in result.checks]
    if why := (result.missing or result.trouble or "").partition("\n")[0]:
        rows.append(("", "", f"  {why[:100]}", "", "", ""))
    return rows


def _line(row: Row, widths: Sequence[int]) -> str:
    number, on, what, figure, target, word = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
    return f"{number.strip():>{widths[0]}}  {on}  {what}  {figure.strip():>{widths[3]}}  {target}  {word}".rstrip()


def _word(check: Check) -> str:
    return "pass" if check.passed else "FAIL"
