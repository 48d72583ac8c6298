"""Every store against a dictionary that follows the same rules."""

from dataclasses import dataclass, field

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.examples import examples
from tests.storage.documents.harness import StoreHarness, issue
from tidegate.storage.documents import Document, Listing

IDS = "abcd"
LISTS = ("one", "two")
OWNERS = ("ann", "bob")


@dataclass
class Kept:
    title: str
    owner: str
    resource: str
    version: int | None
    sweep: int
    gone: bool = False


@dataclass(frozen=True)
class Write:
    """One item in a batch."""

    id: str
    title: str
    owner: str
    resource: str
    version: int | None
    sweep: int

    def document(self, prefix: str) -> Document:
        owner, resource = prefix + self.owner, prefix + self.resource
        return issue(
            prefix + self.id,
            title=self.title,
            owner=owner,
            resource=resource,
            version=self.version,
            sweep=self.sweep,
        )


@dataclass
class Model:
    kept: dict[str, Kept] = field(default_factory=dict[str, Kept])

    def write(self, write: Write) -> bool:
        old = self.kept.get(write.id)
        new = Kept(write.title, write.owner, write.resource, write.version, write.sweep)
        if old is None:
            self.kept[write.id] = new
            return True
        older = old.version is not None and write.version is not None and write.version < old.version
        same = (old.title, old.owner, old.resource, old.version) == (new.title, new.owner, new.resource, new.version)
        comes_back = old.gone and (write.sweep == 0 or write.sweep > old.sweep or write.owner != old.owner)
        new.sweep = max(old.sweep, write.sweep)
        if not older and (comes_back or (not old.gone and not same)):
            self.kept[write.id] = new
            return True
        if not old.gone:
            old.sweep = new.sweep
        return False

    def complete(self, resource: str, sweep: int) -> int:
        missing = [
            kept for kept in self.kept.values() if kept.resource == resource and kept.sweep < sweep and not kept.gone
        ]
        for kept in missing:
            kept.gone, kept.sweep = True, sweep
        return len(missing)


writes = st.builds(
    Write,
    id=st.sampled_from(IDS),
    title=st.sampled_from("xyz"),
    owner=st.sampled_from(OWNERS),
    resource=st.sampled_from(LISTS),
    version=st.none() | st.integers(8, 11),
    sweep=st.integers(0, 3),
)
batches = st.lists(writes, max_size=4, unique_by=lambda write: write.id)
listings = st.lists(st.tuples(st.sampled_from(LISTS), st.integers(1, 4)), max_size=1)
played = 0


@settings(
    max_examples=examples(15),
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    deadline=None,
)
@given(steps=st.lists(st.tuples(batches, listings), min_size=1, max_size=8))
async def test_a_store_behaves_like_the_model(
    harness: StoreHarness, steps: list[tuple[list[Write], list[tuple[str, int]]]]
) -> None:
    global played  # noqa: PLW0603
    played += 1
    prefix = f"{played}:"  # each example has ids of its own: quicker than emptying the store
    model = Model()
    for batch, completed in steps:
        expected = sum(model.write(write) for write in batch)
        gone = sum(model.complete(resource, sweep) for resource, sweep in completed)

        written = await harness.write(
            *(write.document(prefix) for write in batch),
            completed=[Listing("issue", prefix + resource, sweep) for resource, sweep in completed],
        )

        assert (written.changed, written.gone) == (expected, gone)
    for owner in OWNERS:
        await assert_same(harness, model, prefix, owner)


async def assert_same(harness: StoreHarness, model: Model, prefix: str, owner: str) -> None:
    mine = {prefix + number: kept for number, kept in sorted(model.kept.items()) if kept.owner == owner}
    found = [document async for document in harness.store.iterate("issue", prefix + owner, with_gone=True)]
    assert {each.id: (each.body["title"], each.resource, each.gone_at is not None) for each in found} == {
        number: (kept.title, prefix + kept.resource, kept.gone) for number, kept in mine.items()
    }
    alive = [number for number, kept in mine.items() if not kept.gone]
    assert await harness.ids(owner=prefix + owner, batch=2) == alive
    assert await harness.store.count("issue", prefix + owner) == len(alive)
