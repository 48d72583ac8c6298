"""Words, texts and moments of GitHub's world, out of draws."""

from datetime import UTC, datetime

from tidegate_simulators.draws import draw, pick

DAY_S = 86_400

HARBOURS = (
    "amber", "anchor", "basin", "beacon", "bollard", "breaker", "buoy", "canal", "capstan", "channel", "cove",
    "current", "delta", "dock", "ebb", "estuary", "ferry", "fjord", "galley", "harbor", "inlet", "jetty", "keel",
    "lagoon", "lantern", "lighthouse", "lock", "marina", "mooring", "neap", "pier", "pilot", "quay", "reef", "rudder",
    "sextant", "shoal", "sluice", "sound", "spring", "strait", "surge", "swell", "tide", "trawl", "wake", "weir",
    "wharf",
)  # fmt: skip
LANGUAGES = ("Python", "Go", "Rust", "TypeScript", "JavaScript", "Java", "C", "C++", "Ruby", "Shell", None)
LABELS = ("bug", "enhancement", "documentation", "good first issue", "question", "wontfix", "performance", "security")
PHRASES = (
    "The window closes before the last page is read.",
    "Works on one machine, fails behind the proxy.",
    "Steps: start it twice, stop the first one, look at the counter.",
    "Größe und Länge stimmen nicht überein — naïve rounding?",
    "See the log below; the third line is the surprising one.",
    "日本語のファイル名でも同じ結果になります。",
    "I would rather keep the old default and document it.",
    "Measured again: 12 % faster, same memory.",
    "This also happens with the released version.",
    "Thanks! One question about the second argument 🙂",
)


def prose(bits: int) -> str:
    """One to four sentences."""
    return " ".join(PHRASES[(bits >> shift) % len(PHRASES)] for shift in range(8, 16 + 8 * (bits % 4), 8))


def title(bits: int) -> str:
    """What an issue or a commit is about, in a few words."""
    verb = pick(("Fix", "Add", "Remove", "Document", "Speed up", "Rename", "Test"), bits)
    return f"{verb} {pick(HARBOURS, bits >> 8)} {pick(HARBOURS, bits >> 16)} of the {pick(HARBOURS, bits >> 24)}"


def moments(key: int, count: int, start: int, end: int) -> list[int]:
    """`count` moments between two, in order, none before `start` or after `end`, a few of them equal."""
    span, width = end - start, max(1, (end - start) // max(1, count))
    return [start + span * i // count + draw(key, i) % width for i in range(count)]


def iso(seconds: int) -> str:
    """A moment as GitHub writes it."""
    return datetime.fromtimestamp(seconds, UTC).isoformat()[:19] + "Z"


def from_iso(text: str) -> int:
    """The second that a text in ISO 8601 names; ValueError if it names none."""
    moment = datetime.fromisoformat(text)
    return int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp())
