"""A marketplace of one's own: listings, shops, details and options that change, limits, faults, a proof of politeness.

async with MarketplaceSimulator(MarketplaceConfig(world=WorldShape(hosts=2))) as simulator:
    ...  # crawl simulator.urls for simulator.world.keywords with simulator.identities
    assert simulator.report().broken == 0
    assert products == simulator.all_truth()

Each host has `/robots.txt`, `/search?q={keyword}&page={n}` (HTML), and for what is found there
`/api/shops/{shop}/mini?product={product}`, `/api/products/{product}` and `/api/products/{product}/options` (JSON).
"""

from tidegate_simulators.marketplace.config import (
    Behaviour,
    FaultKind,
    FaultRule,
    LimitSettings,
    MarketplaceConfig,
    PauseScope,
    Politeness,
    RobotsGroup,
    RobotsSettings,
    Route,
    WorldShape,
    parse_faults,
)
from tidegate_simulators.marketplace.documents import Documents, ProductTruth
from tidegate_simulators.marketplace.identities import Identity
from tidegate_simulators.marketplace.ledger import HostReport, IdentityReport, Report, Rule, Violation
from tidegate_simulators.marketplace.simulator import MarketplaceSimulator
from tidegate_simulators.marketplace.world import Product, World

__all__ = [
    "Behaviour",
    "Documents",
    "FaultKind",
    "FaultRule",
    "HostReport",
    "Identity",
    "IdentityReport",
    "LimitSettings",
    "MarketplaceConfig",
    "MarketplaceSimulator",
    "PauseScope",
    "Politeness",
    "Product",
    "ProductTruth",
    "Report",
    "RobotsGroup",
    "RobotsSettings",
    "Route",
    "Rule",
    "Violation",
    "World",
    "WorldShape",
    "parse_faults",
]
