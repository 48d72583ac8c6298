"""Every word of the waiting page, in every language that it speaks.

A text is a sentence, or one for each form that a number asks for. `{name}` is filled in; in a browser, too, where the
same texts are used to show what has changed.
"""

import re
from collections.abc import Mapping
from typing import Final, Literal, get_args

from tidegate.core.errors import ContractBroken

Language = Literal["en", "ko"]
LANGUAGES: Final[tuple[Language, ...]] = get_args(Language)
FORMS: Final[Mapping[Language, tuple[str, ...]]] = {"en": ("one", "other"), "ko": ("other",)}
"""What numbers do to words."""

Text = str | Mapping[str, str]

_EN: Mapping[str, Text] = {
    "name": "English",
    "next": "What happens next",
    "next.stay": "Keep this page open. It stays up to date by itself.",
    "next.turn": "When it is your turn, you are taken inside.",
    "next.inside": "Once you are inside, you have {span}.",
    "waiting.keep": "If this page is closed by accident, your place is kept for {span}.",
    "drawing.keep": "If this page is closed by accident, you stay in the draw for {span}.",
    "lost": "Connection lost. Your place is kept, and this page is trying again.",
    "join.title": "Join the line",
    "join.lead": "Visitors are let in one after the other.",
    "join.count": {"one": "1 person is waiting.", "other": "{n} people are waiting."},
    "join.nobody": "Nobody is waiting at the moment.",
    "join.do": "Join the line",
    "join.again": "Join again",
    "join.early.title": "Starting soon",
    "join.early.lead": "Places are drawn by lot among all who have joined by the start. Coming early is no advantage.",
    "join.early.do": "Take part",
    "drawing.title": "You are taking part",
    "drawing.lead": "At the start, everyone here is given a place by lot. When you came makes no difference.",
    "drawing.until": "Until the start",
    "fair": "How we keep the draw fair",
    "fair.how": "All places follow from one secret number, chosen when this line was made. This is its fingerprint "
    "(SHA-256). The number itself is published at the start: anyone can then check that it fits, and that nothing was "
    "changed.",
    "fair.check": "See what is published",
    "waiting.title": "You are in line",
    "waiting.place": "Your place in line",
    "waiting.first": "You are next.",
    "waiting.progress": "The way from where you began to the entrance",
    "waiting.estimate": "Estimated wait",
    "waiting.behind": "Behind you",
    "waiting.people": {"one": "1 person", "other": "{n} people"},
    "waiting.nobody": "Nobody yet",
    "waiting.paused": "The line is paused at the moment. Your place is kept.",
    "waiting.said": "Your place in line: {n}.",
    "waiting.tab": "{n} in line",
    "waiting.leave": "Leave the line",
    "waiting.leave.sure": "Your place will be gone. If you come back, you start at the end.",
    "waiting.leave.do": "Leave, and give up my place",
    "drawing.leave": "Leave the draw",
    "drawing.leave.sure": "You will not take part any more. Until the start you can come back.",
    "drawing.leave.do": "Leave the draw",
    "entering.title": "It is your turn",
    "entering.lead": "The door is opening. Please stay for a moment.",
    "inside.title": "You are in",
    "inside.lead": "Thank you for waiting.",
    "inside.left": "Time left",
    "inside.leave": "I am done",
    "over.title": "Your visit is over",
    "over.lead": "Your time inside has ended.",
    "lapsed.title": "Your place was given up",
    "lapsed.lead": "This page was closed for more than {span}, and the line has moved on.",
    "left.title": "You have left",
    "left.lead": "Your place is free for the next person.",
    "again.closed": "The line is closed. Joining is not possible right now.",
    "again.shop": "To come again, go back to the site that sent you here.",
    "closed.title": "The line is closed",
    "closed.lead": "Nobody can join right now. You can keep this page open: it looks again by itself.",
    "uninvited.title": "Please come in through the site",
    "uninvited.lead": "You get a place here from the site that you want to visit. Open it, and it brings you back.",
    "uninvited.do": "Go to the site",
    "unavailable.title": "One moment, please",
    "unavailable.lead": "The line cannot be reached right now. If you have a place, it is kept. "
    "This page tries again by itself.",
    "unavailable.do": "Try now",
    "throttled.title": "One moment, please",
    "throttled.lead": "Many visitors are joining from your network right now. Please try again in {span}.",
    "puzzle.solving": "Checking your browser…",
    "puzzle.script": "To join this line, please turn on JavaScript.",
    "absent.title": "There is no line here",
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
    "next": "이렇게 진행됩니다",
    "next.stay": "이 페이지를 열어 두세요. 화면은 자동으로 바뀝니다.",
    "next.turn": "차례가 되면 자동으로 입장합니다.",
    "next.inside": "입장하면 {span} 동안 이용할 수 있습니다.",
    "waiting.keep": "실수로 페이지를 닫아도 {span} 동안은 순번이 유지됩니다.",
    "drawing.keep": "실수로 페이지를 닫아도 {span} 동안은 추첨 참여가 유지됩니다.",
    "lost": "연결이 끊겼습니다. 순번은 그대로 유지되며, 자동으로 다시 연결합니다.",
    "join.title": "대기열에 참여하기",
    "join.lead": "한 분씩 차례대로 입장합니다.",
    "join.count": {"other": "현재 {n}명이 기다리고 있습니다."},
    "join.nobody": "지금은 기다리는 사람이 없습니다.",
    "join.do": "대기열에 참여하기",
    "join.again": "다시 참여하기",
    "join.early.title": "곧 시작합니다",
    "join.early.lead": "시작 전에 참여한 모든 분의 순번을 추첨으로 정합니다. 일찍 와도 더 유리하지 않습니다.",
    "join.early.do": "참여하기",
    "drawing.title": "추첨에 참여했습니다",
    "drawing.lead": "시작 시각에 모든 참여자의 순번을 추첨으로 정합니다. 언제 들어왔는지는 상관없습니다.",
    "drawing.until": "시작까지 남은 시간",
    "fair": "추첨은 어떻게 공정하게 이루어지나요?",
    "fair.how": "모든 순번은 이 대기열을 만들 때 정해 둔 하나의 비밀 값에서 나옵니다. "
    "아래는 그 값의 지문(SHA-256)입니다. 비밀 값은 시작 시각에 공개되므로, "
    "지문과 일치하는지, 중간에 바뀐 것이 없는지 누구나 확인할 수 있습니다.",
    "fair.check": "공개된 값 보기",
    "waiting.title": "순서를 기다리고 있습니다",
    "waiting.place": "내 대기 순번",
    "waiting.first": "바로 다음 차례입니다.",
    "waiting.progress": "처음 순번에서 입장까지의 진행 정도",
    "waiting.estimate": "예상 대기 시간",
    "waiting.behind": "내 뒤에 있는 사람",
    "waiting.people": {"other": "{n}명"},
    "waiting.nobody": "아직 없음",
    "waiting.paused": "지금은 입장이 잠시 멈춰 있습니다. 순번은 그대로 유지됩니다.",
    "waiting.said": "현재 대기 순번은 {n}번입니다.",
    "waiting.tab": "대기 {n}번",
    "waiting.leave": "대기열에서 나가기",
    "waiting.leave.sure": "나가면 지금 순번은 사라지고, 다시 참여하면 맨 뒤에서 기다리게 됩니다.",
    "waiting.leave.do": "순번을 포기하고 나가기",
    "drawing.leave": "추첨에서 나가기",
    "drawing.leave.sure": "추첨 참여가 취소됩니다. 시작 전까지는 다시 참여할 수 있습니다.",
    "drawing.leave.do": "추첨에서 나가기",
    "entering.title": "입장할 차례입니다",
    "entering.lead": "입장하고 있습니다. 잠시만 기다려 주세요.",
    "inside.title": "입장했습니다",
    "inside.lead": "기다려 주셔서 감사합니다.",
    "inside.left": "남은 이용 시간",
    "inside.leave": "이용 마치기",
    "over.title": "이용이 끝났습니다",
    "over.lead": "이용 시간이 끝났습니다.",
    "lapsed.title": "순번이 취소되었습니다",
    "lapsed.lead": "{span} 넘게 이 페이지가 닫혀 있어 순번이 다음 분에게 넘어갔습니다.",
    "left.title": "나가기가 완료되었습니다",
    "left.lead": "자리는 다음 분에게 넘어갔습니다.",
    "again.closed": "대기열이 닫혀 있어 지금은 참여할 수 없습니다.",
    "again.shop": "다시 이용하려면 원래 사이트에서 다시 들어와 주세요.",
    "closed.title": "지금은 대기열이 닫혀 있습니다",
    "closed.lead": "지금은 참여할 수 없습니다. 이 페이지를 열어 두시면 자동으로 다시 확인합니다.",
    "uninvited.title": "원래 사이트를 통해 들어와 주세요",
    "uninvited.lead": "순번은 방문하려는 사이트에서 받을 수 있습니다. 그 사이트를 열면 다시 이곳으로 안내됩니다.",
    "uninvited.do": "사이트로 이동",
    "unavailable.title": "잠시만 기다려 주세요",
    "unavailable.lead": "지금은 대기열에 연결할 수 없습니다. 이미 받은 순번은 그대로 유지됩니다. "
    "자동으로 다시 연결합니다.",
    "unavailable.do": "지금 다시 시도",
    "throttled.title": "잠시만 기다려 주세요",
    "throttled.lead": "지금 같은 네트워크에서 많은 분이 참여하고 있습니다. {span} 후에 다시 시도해 주세요.",
    "puzzle.solving": "브라우저를 확인하고 있습니다…",
    "puzzle.script": "대기열에 참여하려면 JavaScript를 켜 주세요.",
    "absent.title": "대기열을 찾을 수 없습니다",
    "absent.lead": "주소를 다시 확인해 주세요.",
    "seconds": {"other": "{n}초"},
    "minutes": {"other": "{n}분"},
    "hours": {"other": "{n}시간"},
    "days": {"other": "{n}일"},
    "wait.unknown": "계산 중입니다",
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
    """A text of the table; `number` chooses its form and is `{n}`, written as people write it."""
    text = TEXTS[language][key]
    if not isinstance(text, str):
        if number is None:
            raise ContractBroken(f"{key}: which of its forms is meant depends on a number")
        text = text[form_of(language, number)]
    return text.format(n="" if number is None else f"{number:,}", **values)


def form_of(language: Language, number: int) -> str:
    """Which form of a text a number asks for."""
    return "one" if number == 1 and "one" in FORMS[language] else "other"


def language_of(wanted: str | None, accepted: str) -> Language:
    """The language that was asked for, else the best that a browser's `Accept-Language` names, else English."""
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
