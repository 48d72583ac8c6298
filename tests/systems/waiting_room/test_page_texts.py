"""The words of the waiting page, in all of its languages."""

import re
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.core.errors import ContractBroken
from tidegate.systems.waiting_room import Estimate
from tidegate.systems.waiting_room.api import pages
from tidegate.systems.waiting_room.api.pages.rendering import duration_text, wait_text
from tidegate.systems.waiting_room.api.pages.texts import FORMS, LANGUAGES, TEXTS, Language, Text, language_of, say

FOLDER = Path(pages.__file__).parent


def forms_of(text: Text) -> list[str]:
    return [text] if isinstance(text, str) else list(text.values())


def blanks(text: Text) -> set[str]:
    return {name for form in forms_of(text) for name in re.findall(r"{(\w+)}", form)}


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_language_has_every_text_with_the_same_placeholders(language: Language):
    assert TEXTS[language].keys() == TEXTS["en"].keys()
    for key, text in TEXTS[language].items():
        assert all(form.strip() for form in forms_of(text)), key
        assert blanks(text) == blanks(TEXTS["en"][key]), key
        assert isinstance(text, str) == isinstance(TEXTS["en"][key], str), key
        if not isinstance(text, str):
            assert tuple(text) == FORMS[language], key


def test_defined_and_used_texts_are_equal():
    """Keys that are put together begin with the name of a page state, or with `wait.`."""
    sources = [*FOLDER.glob("*.py"), *FOLDER.glob("templates/*.html"), *FOLDER.glob("assets/*.js")]
    said = "\n".join(path.read_text() for path in sources if path.name != "texts.py")
    made_up = re.compile(
        r"\w+\.(title|lead)|wait\.\w+\.(minutes|hours)|join\.(early\.)?\w+|\w+\.(keep|leave)(\.\w+)?|name"
    )

    unused = [key for key in TEXTS["en"] if f'"{key}"' not in said and not made_up.fullmatch(key)]
    asked = set(re.findall(r"\b(?:say|told)\((?:language, )?\"([\w.]+)\"", said))

    assert unused == []
    assert asked - TEXTS["en"].keys() == set()


def test_a_number_selects_the_plural_form_and_is_formatted_for_the_language():
    assert [say("en", "waiting.people", n) for n in (1, 2, 12345)] == ["1 person", "2 people", "12,345 people"]
    assert [say("ko", "waiting.people", n) for n in (1, 12345)] == ["1명", "12,345명"]
    with pytest.raises(ContractBroken):
        say("en", "waiting.people")


@pytest.mark.parametrize(
    ("wanted", "accepted", "language"),
    [
        (None, "", "en"),
        (None, "ko-KR,ko;q=0.9,en-US;q=0.8,en;q=0.7", "ko"),
        (None, "en-GB,en;q=0.9,ko;q=0.8", "en"),
        (None, "fr-FR, ko;q=0.3", "ko"),
        (None, "en;q=0.2, KO;q=0.3", "ko"),
        (None, "ko;q=0, de", "en"),
        (None, "*", "en"),
        (None, "kok", "en"),
        (None, ";;;,,q=", "en"),
        ("ko", "en", "ko"),
        ("en", "ko", "en"),
        ("fr", "ko", "ko"),
        ("<script>", "", "en"),
    ],
)
def test_the_language_is_the_requested_one_or_the_best_of_the_browser(
    wanted: str | None, accepted: str, language: Language
):
    assert language_of(wanted, accepted) == language


@pytest.mark.parametrize(
    ("seconds", "english", "korean"),
    [
        (0, "0 seconds", "0초"),
        (1, "1 second", "1초"),
        (60, "1 minute", "1분"),
        (90, "90 seconds", "90초"),
        (120, "2 minutes", "2분"),
        (179.9, "2 minutes", "2분"),
        (600, "10 minutes", "10분"),
        (3600, "1 hour", "1시간"),
        (5400, "90 minutes", "90분"),
        (7200, "2 hours", "2시간"),
        (86400, "24 hours", "24시간"),
        (200_000, "2 days", "2일"),
    ],
)
def test_a_duration_is_given_in_one_unit_and_rounded_down(seconds: float, english: str, korean: str):
    length = timedelta(seconds=seconds)

    assert (duration_text("en", length), duration_text("ko", length)) == (english, korean)


@pytest.mark.parametrize(
    ("soonest", "latest", "english", "korean"),
    [
        (10, 50, "Less than a minute", "1분 이내"),
        (30, 100, "Up to 2 minutes", "2분 이내"),
        (185, 290, "About 3 to 5 minutes", "약 3~5분"),
        (180, 180, "About 3 minutes", "약 3분"),
        (60, 60, "About 1 minute", "약 1분"),
        (1130, 1600, "About 15 to 30 minutes", "약 15~30분"),
        (100, 1600, "Up to 30 minutes", "30분 이내"),
        (3700, 7100, "About 1 to 2 hours", "약 1~2시간"),
        (100, 6000, "Up to 2 hours", "2시간 이내"),
        (7200, 7200, "About 2 hours", "약 2시간"),
        (20_000, 60_000, "More than 5 hours", "5시간 이상"),
        (90_000, 600_000, "More than 12 hours", "12시간 이상"),
        (100, 600_000, "Not known yet", "계산 중"),
    ],
)
def test_a_wait_is_an_interval_as_precise_as_the_estimate(soonest: float, latest: float, english: str, korean: str):
    estimate = Estimate(timedelta(seconds=soonest), timedelta(seconds=latest))

    assert (wait_text("en", estimate), wait_text("ko", estimate)) == (english, korean)


def test_an_unknown_wait_is_shown_as_unknown():
    assert (wait_text("en", None), wait_text("ko", None)) == ("Not known yet", "계산 중")


@given(st.floats(0, 100_000), st.floats(1, 10))
def test_the_interval_in_words_contains_the_estimate(soonest_s: float, factor: float):
    told = wait_text("en", Estimate(timedelta(seconds=soonest_s), timedelta(seconds=soonest_s * factor)))
    unit = 3600 if "hour" in told else 60
    numbers = [int(n) * unit for n in re.findall(r"\d+", told)]

    if told.startswith("About"):
        assert numbers[0] <= soonest_s + 1
    if told.startswith(("About", "Up to")):
        assert numbers[-1] >= soonest_s * factor - 1
    if told.startswith("More"):
        assert numbers[0] <= soonest_s + 1
