"""Generates the world: accounts and repositories as functions of the seed."""

from tidegate_simulators.draws import draw, fraction, pick
from tidegate_simulators.github.config import Sizes, WorldShape
from tidegate_simulators.github.draws import DAY_S, HARBOURS
from tidegate_simulators.github.repository import Account, Repository, Standing

_FIRST_ACCOUNT_ID = 10_200
FIRST_REPOSITORY_ID = 100_000_000
_PER_ACCOUNT = 1_000
_YEAR_S = 365 * DAY_S


def account(shape: WorldShape, index: int, epoch: int) -> Account:
    """The user with this index; the last ones are operators."""
    key = draw(shape.seed, index, 21)
    is_operator = index >= shape.users
    name = f"operator-{index - shape.users + 1}" if is_operator else f"{pick(HARBOURS, key)}-{pick(HARBOURS, key >> 8)}"
    login = name if is_operator else f"{name}-{index}"
    joined = epoch - 4 * _YEAR_S - key % (8 * _YEAR_S)
    touched = epoch - key % (2 * _YEAR_S)
    number, is_organization = _FIRST_ACCOUNT_ID + 37 * index, index < shape.organizations
    return Account(number, login, key, joined, touched, is_operator, is_organization)


def index_of_account(repository_id: int) -> int:
    """The first owner of the repository."""
    return (repository_id - FIRST_REPOSITORY_ID) // _PER_ACCOUNT


def repositories(shape: WorldShape, owner: Account, index: int, epoch: int) -> list[Repository]:
    """The repositories that an account has in the beginning."""
    if owner.is_operator:
        return []
    count = 1 + owner.key % 12 if shape.repositories is None else shape.repositories
    return [_repository(shape, owner, _PER_ACCOUNT * index + ordinal, epoch) for ordinal in range(count)]


def _repository(shape: WorldShape, owner: Account, ordinal: int, epoch: int) -> Repository:
    key = draw(shape.seed, ordinal, 22)
    made = Repository(
        id=FIRST_REPOSITORY_ID + ordinal,
        owner=owner,
        name=f"{pick(HARBOURS, key)}-{pick(HARBOURS, key >> 8)}-{ordinal % _PER_ACCOUNT}",
        key=key,
        sizes=shape.sizes or _drawn_sizes(key),
        start=epoch - 90 * DAY_S - key % (3 * _YEAR_S),
        end=epoch,
        stars=int(1 / (0.0005 + fraction(draw(key, 1)))),
        has_discussions=shape.discussions > 0,
    )
    if shape.quirks:
        _give_quirk(made, draw(key, 2) % 120)
    return made


def _drawn_sizes(key: int) -> Sizes:
    """Three of four are small, one of twenty is large."""
    chance, bits = fraction(draw(key, 3)), draw(key, 4)
    scale = 50 if chance < 0.75 else 400 if chance < 0.95 else 2_500

    def up_to(most: int, shift: int) -> int:
        return (bits >> shift) % 1_000 * most // 1_000

    issues, pulls = up_to(scale, 0), up_to(scale // 2, 10)
    return Sizes(
        issues=issues,
        pulls=pulls,
        commits=1 + up_to(2 * scale, 20),
        issue_comments=(issues + pulls) * (1 + up_to(3, 30)),
        review_comments=pulls * up_to(4, 40),
        reviews=pulls * up_to(3, 50),
    )


def _give_quirk(made: Repository, chance: int) -> None:
    """Of 120 repositories: 6 empty, 8 without issues, 8 renamed, 5 private, 2 taken down, 2 blocked."""
    if chance < 6:
        made.sizes = Sizes()
    elif chance < 14:
        made.has_issues = False
        made.sizes = _without_issues(made.sizes)
    elif chance < 22:
        made.former_names.append(f"{made.owner.login}/old-{made.name}")
    elif chance < 27:
        made.standing = Standing.PRIVATE
    elif chance < 29:
        made.standing = Standing.TAKEN_DOWN
    elif chance < 31:
        made.standing = Standing.BLOCKED


def _without_issues(sizes: Sizes) -> Sizes:
    return Sizes(
        pulls=sizes.pulls,
        commits=sizes.commits,
        issue_comments=min(sizes.issue_comments, 3 * sizes.pulls),
        review_comments=sizes.review_comments,
        reviews=sizes.reviews,
    )
