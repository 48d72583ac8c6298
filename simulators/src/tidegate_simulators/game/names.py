"""Names of characters: five syllables that stand for the id, so that either is found from the other without a table."""

from tidegate_simulators.game.config import MOST_SUBJECTS

_ONSETS = ("b", "br", "d", "f", "g", "k", "kr", "l", "m", "n", "p", "r", "s", "t", "v", "z")
_SYLLABLES = tuple(onset + vowel for onset in _ONSETS for vowel in "aeio")
_NUMBERS = {syllable: number for number, syllable in enumerate(_SYLLABLES)}
_PLACES = 5
_MASK = MOST_SUBJECTS - 1
# An odd factor turns neighbouring ids into names that are far apart, and can be undone.
_FACTOR = 0x2545F491 & _MASK | 1
_INVERSE = pow(_FACTOR, -1, MOST_SUBJECTS)


def name_of(subject: int) -> str:
    """The name of a character; no two have the same."""
    rest, syllables = subject * _FACTOR, _SYLLABLES
    return (
        syllables[rest & 63]
        + syllables[rest >> 6 & 63]
        + syllables[rest >> 12 & 63]
        + syllables[rest >> 18 & 63]
        + syllables[rest >> 24 & 63]
    ).capitalize()


def subject_of(name: str) -> int | None:
    """Return the id of a name, regardless of case; None if there is no such character."""
    rest, at, text = 0, 0, name.lower()
    for place in range(_PLACES):
        end = at + 1
        while end < len(text) and text[end - 1] not in "aeio":
            end += 1
        number = _NUMBERS.get(text[at:end])
        if number is None:
            return None
        rest |= number << 6 * place
        at = end
    return (rest * _INVERSE & _MASK) or None if at == len(text) else None
