"""Texts of the waiting page, in every supported language.

A text is a string, or one string for each plural form. `{name}` is a placeholder. The browser uses the same texts to
show changes.
"""

import re
from collections.abc import Mapping
from typing import Final, Literal, get_args

from tidegate.core.errors import ContractBroken

Language = Literal["en", "ko"]
LANGUAGES: Final[tuple[Language, ...]] = get_args(Language)
FORMS: Final[Mapping[Language, tuple[str, ...]]] = {"en": ("one", "other"), "ko": ("other",)}
"""Plural forms of each language."""

Text = str | Mapping[str, str]

_EN: Mapping[str, Text] = {
    "name": "English",
    "next": "What happens next",
    "next.stay": "Keep this page open. It updates automatically.",
    "next.turn": "When it is your turn, you are admitted automatically.",
    "next.inside": "Once you are admitted, you have {span}.",
    "waiting.keep": "If you close this page by accident, your place is kept for {span}.",
    "drawing.keep": "If you close this page by accident, you stay in the draw for {span}.",
    "lost": "Connection lost. Your place is kept. Reconnecting…",
    "join.title": "Join the line",
    "join.lead": "Visitors are admitted in order.",
    "join.count": {"one": "1 person is waiting.", "other": "{n} people are waiting."},
    "join.none": "No one is waiting right now.",
    "join.do": "Join the line",
    "join.again": "Join again",
    "join.early.title": "Starting soon",
    "join.early.lead": "Everyone who joins before the start is placed in random order. Joining early is no advantage.",
    "join.early.do": "Join the draw",
    "drawing.title": "You are in the draw",
    "drawing.lead": "At the start, everyone here is placed in random order. It does not matter when you joined.",
    "drawing.until": "Time until the start",
    "fair": "How the draw is kept fair",
    "fair.how": "All places are computed from one secret value, chosen when this line was created. This is its "
    "fingerprint (SHA-256). The value is published at the start, so that anyone can verify that it was not changed.",
    "fair.check": "View the published values",
    "waiting.title": "You are in line",
    "waiting.place": "Your place in line",
    "waiting.first": "You are next.",
    "waiting.progress": "Progress from your first place to admission",
    "waiting.estimate": "Estimated wait",
    "waiting.behind": "Behind you",
    "waiting.people": {"one": "1 person", "other": "{n} people"},
    "waiting.none": "No one yet",
    "waiting.paused": "The line is paused at the moment. Your place is kept.",
    "waiting.said": "Your place in line: {n}.",
    "waiting.tab": "{n} in line",
    "waiting.leave": "Leave the line",
    "waiting.leave.sure": "You will lose your place. If you join again, you start at the end of the line.",
    "waiting.leave.do": "Leave and give up my place",
    "drawing.leave": "Leave the draw",
    "drawing.leave.sure": "You will no longer take part. You can join again until the start.",
    "drawing.leave.do": "Leave the draw",
    "entering.title": "It is your turn",
    "entering.lead": "You are being admitted. Please wait a moment.",
    "inside.title": "You are in",
    "inside.lead": "Thank you for waiting.",
    "inside.left": "Time left",
    "inside.leave": "End my visit",
    "over.title": "Your visit is over",
    "over.lead": "Your time inside has ended.",
    "lapsed.title": "Your place has expired",
    "lapsed.lead": "This page was closed for more than {span}, so your place was released.",
    "left.title": "You have left",
    "left.lead": "Your place has been released.",
    "again.closed": "The line is closed. Joining is not possible right now.",
    "again.shop": "To join again, return to the site that sent you here.",
    "closed.title": "The line is closed",
    "closed.lead": "Joining is not possible right now. Keep this page open; it checks again automatically.",
    "uninvited.title": "Please start from the site",
    "uninvited.lead": "Your place comes from the site that you want to visit. Open that site, and it sends you here.",
    "uninvited.do": "Go to the site",
    "unavailable.title": "One moment, please",
    "unavailable.lead": "The line cannot be reached right now. If you have a place, it is kept. "
    "This page tries again automatically.",
    "unavailable.do": "Try again now",
    "throttled.title": "One moment, please",
    "throttled.lead": "Many visitors are joining from your network right now. Please try again in {span}.",
    "puzzle.solving": "Checking your browser…",
    "puzzle.script": "To join this line, please enable JavaScript.",
    "absent.title": "Waiting room not found",
    "absent.lead": "Please check the address.",
    "seconds": {"one": "1 second", "other": "{n} seconds"},
    "minutes": {"one": "1 minute", "other": "{n} minutes"},
    "hours": {"one": "1 hour", "other": "{n} hours"},
    "days": {"one": "1 day", "other": "{n} days"},
    "wait.unknown": "Not known yet",
    "wait.paused": "Paused",
    "wait.moment": "Less than a minute",
    "wait.within.minutes": {"one": "Up to 1 minute", "other": "Up to {n} minutes"},
    "wait.about.minutes": {"one": "About 1 minute", "other": "About {n} minutes"},
    "wait.between.minutes": "About {from} to {n} minutes",
    "wait.within.hours": {"one": "Up to 1 hour", "other": "Up to {n} hours"},
    "wait.about.hours": {"one": "About 1 hour", "other": "About {n} hours"},
    "wait.between.hours": "About {from} to {n} hours",
    "wait.long": {"one": "More than 1 hour", "other": "More than {n} hours"},
}

_KO: Mapping[str, Text] = {
    "name": "한국어",
    "next": "진행 안내",
    "next.stay": "이 페이지를 닫지 말고 기다려 주세요. 대기 현황은 자동으로 갱신됩니다.",
    "next.turn": "차례가 되면 자동으로 입장됩니다.",
    "next.inside": "입장 후 {span} 동안 이용하실 수 있습니다.",
    "waiting.keep": "실수로 페이지를 닫으셔도 {span} 동안은 대기 순번이 유지됩니다.",
    "drawing.keep": "실수로 페이지를 닫으셔도 {span} 동안은 추첨 참여가 유지됩니다.",
    "lost": "연결이 끊어졌습니다. 대기 순번은 유지되며 자동으로 다시 연결됩니다.",
    "join.title": "대기열 참여",
    "join.lead": "순서대로 입장하실 수 있습니다.",
    "join.count": {"other": "현재 {n}명이 대기 중입니다."},
    "join.none": "현재 대기 중인 분이 없습니다.",
    "join.do": "대기열 참여하기",
    "join.again": "다시 참여하기",
    "join.early.title": "곧 시작됩니다",
    "join.early.lead": "시작 전에 참여하신 모든 분의 순번은 추첨으로 결정됩니다. 먼저 참여하셔도 더 유리하지 않습니다.",
    "join.early.do": "추첨 참여하기",
    "drawing.title": "추첨에 참여하셨습니다",
    "drawing.lead": "시작 시각에 모든 참여자의 순번이 추첨으로 결정됩니다. 참여 시점은 결과에 영향을 주지 않습니다.",
    "drawing.until": "시작까지 남은 시간",
    "fair": "추첨은 어떻게 공정하게 진행되나요?",
    "fair.how": "모든 순번은 이 대기열을 만들 때 정해진 하나의 비밀 값으로 계산됩니다. "
    "아래는 그 값의 지문(SHA-256)입니다. 비밀 값은 시작 시각에 공개되므로, "
    "지문과 일치하는지, 중간에 변경되지 않았는지 누구나 확인하실 수 있습니다.",
    "fair.check": "공개된 값 확인하기",
    "waiting.title": "현재 대기 중입니다",
    "waiting.place": "나의 대기 순번",
    "waiting.first": "다음 차례입니다.",
    "waiting.progress": "대기 진행률",
    "waiting.estimate": "예상 대기 시간",
    "waiting.behind": "내 뒤 대기 인원",
    "waiting.people": {"other": "{n}명"},
    "waiting.none": "없음",
    "waiting.paused": "현재 입장이 일시 중지되었습니다. 대기 순번은 유지됩니다.",
    "waiting.said": "현재 대기 순번은 {n}번입니다.",
    "waiting.tab": "대기 {n}번",
    "waiting.leave": "대기 취소",
    "waiting.leave.sure": "대기를 취소하시면 현재 순번이 사라지며, 다시 참여하시면 맨 뒤에서 대기하시게 됩니다.",
    "waiting.leave.do": "대기 취소하기",
    "drawing.leave": "추첨 참여 취소",
    "drawing.leave.sure": "추첨 참여가 취소됩니다. 시작 전까지는 다시 참여하실 수 있습니다.",
    "drawing.leave.do": "추첨 참여 취소하기",
    "entering.title": "입장하실 차례입니다",
    "entering.lead": "입장을 준비하고 있습니다. 잠시만 기다려 주세요.",
    "inside.title": "입장하셨습니다",
    "inside.lead": "기다려 주셔서 감사합니다.",
    "inside.left": "남은 이용 시간",
    "inside.leave": "이용 종료하기",
    "over.title": "이용이 종료되었습니다",
    "over.lead": "이용 시간이 만료되었습니다.",
    "lapsed.title": "대기 순번이 만료되었습니다",
    "lapsed.lead": "페이지가 {span} 넘게 닫혀 있어 대기 순번이 만료되었습니다.",
    "left.title": "정상적으로 종료되었습니다",
    "left.lead": "고객님의 자리는 다음 분께 안내됩니다.",
    "again.closed": "대기열이 운영 중이 아니어서 지금은 참여하실 수 없습니다.",
    "again.shop": "다시 이용하시려면 처음 접속하신 사이트에서 다시 참여해 주세요.",
    "closed.title": "현재 대기열이 운영 중이 아닙니다",
    "closed.lead": "지금은 참여하실 수 없습니다. 이 페이지를 열어 두시면 자동으로 다시 확인합니다.",
    "uninvited.title": "이용하실 사이트에서 접속해 주세요",
    "uninvited.lead": "대기 순번은 이용하실 사이트에서 발급됩니다. 해당 사이트에 접속하시면 이 페이지로 안내됩니다.",
    "uninvited.do": "사이트로 이동하기",
    "unavailable.title": "잠시만 기다려 주세요",
    "unavailable.lead": "현재 대기열에 연결할 수 없습니다. 이미 받으신 대기 순번은 유지되며, 자동으로 다시 연결됩니다.",
    "unavailable.do": "다시 시도하기",
    "throttled.title": "잠시만 기다려 주세요",
    "throttled.lead": "현재 같은 네트워크에서 많은 분이 참여하고 있습니다. {span} 후에 다시 시도해 주세요.",
    "puzzle.solving": "브라우저를 확인하고 있습니다…",
    "puzzle.script": "대기열에 참여하시려면 JavaScript를 허용해 주세요.",
    "absent.title": "대기열을 찾을 수 없습니다",
    "absent.lead": "주소를 다시 확인해 주세요.",
    "seconds": {"other": "{n}초"},
    "minutes": {"other": "{n}분"},
    "hours": {"other": "{n}시간"},
    "days": {"other": "{n}일"},
    "wait.unknown": "계산 중",
    "wait.paused": "일시 중지됨",
    "wait.moment": "1분 이내",
    "wait.within.minutes": {"other": "{n}분 이내"},
    "wait.about.minutes": {"other": "약 {n}분"},
    "wait.between.minutes": "약 {from}~{n}분",
    "wait.within.hours": {"other": "{n}시간 이내"},
    "wait.about.hours": {"other": "약 {n}시간"},
    "wait.between.hours": "약 {from}~{n}시간",
    "wait.long": {"other": "{n}시간 이상"},
}

TEXTS: Final[Mapping[Language, Mapping[str, Text]]] = {"en": _EN, "ko": _KO}

_WEIGHT = re.compile(r"q=([01](?:\.\d{0,3})?)")


def say(language: Language, key: str, number: int | None = None, /, **values: object) -> str:
    """Format a text; `number` selects the plural form and fills `{n}`, with thousands separators."""
    text = TEXTS[language][key]
    if not isinstance(text, str):
        if number is None:
            raise ContractBroken(f"{key} has plural forms and needs a number")
        text = text[form_of(language, number)]
    return text.format(n="" if number is None else f"{number:,}", **values)


def form_of(language: Language, number: int) -> str:
    """Name of the plural form for a number."""
    return "one" if number == 1 and "one" in FORMS[language] else "other"


def language_of(wanted: str | None, accepted: str) -> Language:
    """The requested language, else the best match of the `Accept-Language` header, else English."""
    if wanted in LANGUAGES:
        return wanted
    weights = dict.fromkeys(LANGUAGES, 0.0)
    for part in accepted.split(","):
        tag, _, parameters = part.strip().partition(";")
        weight = _WEIGHT.search(parameters)
        for language in LANGUAGES:
            if tag.strip().lower().partition("-")[0] == language:
                weights[language] = max(weights[language], float(weight[1]) if weight else 1.0)
    return max(LANGUAGES, key=weights.__getitem__)  # the first of equals
