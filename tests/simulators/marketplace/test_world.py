"""What is for sale: the same for the same seed and steps, different from step to step."""

from collections.abc import Callable

import pytest

from tests.simulators.marketplace.client import SMALL
from tidegate_simulators.errors import InvalidArgument, NotFound
from tidegate_simulators.marketplace import (
    Behaviour,
    Documents,
    FaultKind,
    FaultRule,
    LimitSettings,
    MarketplaceConfig,
    Politeness,
    ProductTruth,
    RobotsGroup,
    RobotsSettings,
    Route,
    World,
    WorldShape,
    parse_faults,
)

LIVELY = WorldShape(
    products=400, hosts=2, appear=0.05, vanish=0.05, reprice=0.1, redescribe=0.1, restock=0.1, resettle=0.2
)


def told(world: World) -> dict[int, ProductTruth]:
    documents = Documents(world)
    return {product.id: documents.truth(product) for product in world.products()}


def test_the_same_seed_and_steps_make_the_same_world():
    first, second = World(LIVELY), World(LIVELY)
    first.advance(7)
    for _ in range(7):
        second.advance()

    assert told(first) == told(second)
    assert [first.listing(1, word) for word in first.keywords] == [second.listing(1, word) for word in second.keywords]
    assert told(World(WorldShape(products=400, hosts=2, seed=2))).keys() == told(World(LIVELY)).keys()
    assert told(World(WorldShape(products=400, hosts=2, seed=2))) != told(World(LIVELY))


@pytest.mark.full
def test_a_step_changes_about_the_configured_shares():
    world = World(WorldShape(products=5_000, resettle=0))
    before = told(world)
    world.advance()
    after = told(world)

    stayed = before.keys() & after.keys()
    assert (len(before) - len(stayed), len(after) - len(stayed)) == (50, 50), (
        "one in a hundred vanishes, as many appear"
    )
    assert world.living == len(after) == 5_000
    changed = [one for one in stayed if before[one] != after[one]]
    assert 0.04 < len(changed) / len(stayed) < 0.06
    repriced = [one for one in stayed if before[one].mini_shop != after[one].mini_shop]
    restocked = [one for one in stayed if before[one].options != after[one].options]
    assert 50 < len(repriced) <= 100
    assert 50 < len(restocked) <= 100


def test_a_world_without_changes_stays_constant():
    still = WorldShape(products=200, appear=0, vanish=0, reprice=0, redescribe=0, restock=0, resettle=0)
    world = World(still)
    before = told(world)
    world.advance(20)
    assert told(world) == before


@pytest.mark.parametrize("steps", [0, 9])
def test_every_product_is_found_by_its_searches_and_by_no_other(steps: int):
    world = World(LIVELY)
    world.advance(steps)
    found: dict[int, list[str]] = {}
    for host in range(LIVELY.hosts):
        for keyword in world.keywords:
            products = world.at(world.listing(host, keyword)[0])
            assert all(product.host == host for product in products)
            for product in products:
                found.setdefault(product.id, []).append(keyword)

    assert {product: sorted(words) for product, words in found.items()} == {
        product: sorted(truth.keywords) for product, truth in told(world).items()
    }
    assert any(len(words) == 2 for words in found.values())


def test_product_ids_are_unique_and_each_product_is_found_by_its_id():
    world = World(WorldShape(products=3_000, hosts=3))
    products = list(world.products())
    assert len({product.id for product in products}) == 3_000
    assert all(world.find(product.id) == product for product in products)
    assert world.find(products[0].id + 1) is None
    assert world.find(-1) is None
    assert all(product.shop % 3 == product.host for product in products), "a shop sells at one host"


def test_a_product_can_be_changed_and_removed_manually():
    world = World(SMALL)
    before = told(world)
    one, other = list(before)[:2]
    world.change(one)
    changed = told(world)
    assert {product for product in before if before[product] != changed[product]} == {one}

    world.vanish(other)
    assert world.step == 2
    assert told(world).keys() == before.keys() - {other}
    with pytest.raises(NotFound):
        world.change(other)


def test_fault_rules_are_parsed():
    assert parse_faults("502=0.01, captcha@search=1,") == (
        FaultRule(kind=FaultKind.BAD_GATEWAY, rate=0.01),
        FaultRule(kind=FaultKind.CAPTCHA, rate=1, route=Route.SEARCH),
    )


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: WorldShape(products=0),
        lambda: WorldShape(hosts=65),
        lambda: WorldShape(vanish=2),
        lambda: WorldShape(steps_every_s=0),
        lambda: WorldShape(step_s=0),
        lambda: LimitSettings(per_identity=0),
        lambda: LimitSettings(ban_s=-1),
        lambda: RobotsGroup(crawl_delay_s=-1),
        lambda: RobotsGroup(disallow=("/a\nAllow: /",)),
        lambda: RobotsSettings(status=301),
        lambda: Politeness(delay_s=-1),
        lambda: Politeness(at_once_per_identity=0),
        lambda: Behaviour(jitter=2),
        lambda: MarketplaceConfig(port=65_535, world=WorldShape(hosts=2)),
        lambda: MarketplaceConfig(identities=-1),
        lambda: World(SMALL).advance(-1),
        lambda: parse_faults("418=1"),
        lambda: parse_faults("502=2"),
        lambda: parse_faults("502@cart=1"),
    ],
)
def test_invalid_arguments_are_refused(wrong: Callable[[], object]):
    with pytest.raises(InvalidArgument):
        wrong()
