"""Answers admitted calls; answers are cached while nothing changes."""

from collections.abc import Hashable

from tidegate_simulators.github.answers import Answer, AnswerCache, Refused, not_found, ok, refuse
from tidegate_simulators.github.calls import Call
from tidegate_simulators.github.config import Behaviour
from tidegate_simulators.github.credentials import Credentials
from tidegate_simulators.github.extras import Extras
from tidegate_simulators.github.graphql import GraphQL
from tidegate_simulators.github.graphql_schema import Schema
from tidegate_simulators.github.items import Items
from tidegate_simulators.github.mutations import Mutations
from tidegate_simulators.github.repository import Repository
from tidegate_simulators.github.repository_resources import RepositoryResources
from tidegate_simulators.github.secondary import SecondaryLimits
from tidegate_simulators.github.user_resources import UserResources
from tidegate_simulators.github.windows import Windows
from tidegate_simulators.github.world import World

BUCKETS = ("core", "search", "code_search", "graphql")


class Api:
    """All resources behind one door."""

    def __init__(
        self,
        world: World,
        credentials: Credentials,
        windows: Windows,
        *,
        secondary: SecondaryLimits,
        mutations: Mutations,
        behaviour: Behaviour,
    ) -> None:
        items = Items(world)
        self._world, self._credentials, self._windows = world, credentials, windows
        self._secondary, self._mutations = secondary, mutations
        self.extras = Extras(world)
        self._repositories = RepositoryResources(world, items, behaviour, self.extras)
        self._users = UserResources(world, items, behaviour)
        self._graphql = GraphQL(Schema(world, items, self.extras), behaviour.graphql_nodes_in_time)
        self._cache = AnswerCache()
        self.mutated = 0

    def answer(self, call: Call) -> Answer:
        """The answer, errors included."""
        try:
            return self._answer(call)
        except Refused as refused:
            return refused.answer

    def _answer(self, call: Call) -> Answer:
        route = call.match.route
        if route in self._repositories.by_route:
            return self._of_repository(call, route)
        if route == "graphql":
            answer = self._graphql.answer(call, self._windows.of(call.caller, "graphql"))
            self._secondary.computed(call, answer.computing_s)
            return answer
        if route in self._users.by_route and call.method in ("GET", "HEAD"):
            return self._users.by_route[route](call)
        match route:
            case "rate_limit":
                return self._rate_limit(call)
            case "app":
                return self._credentials.describe_app(call)
            case "app.token":
                return self._credentials.issue(call)
            case _:
                raise not_found()

    def _of_repository(self, call: Call, route: str) -> Answer:
        found = self._repositories.find(call)
        if call.method not in ("GET", "HEAD"):
            raise refuse(403, "Must have admin rights to Repository.")
        key: Hashable = (route, found.id, found.version, call.match.rest, call.raw_query, call.origin)
        answer = self._cache.get(key)
        if answer is None or route == "repo.stargazers":
            answer = self._repositories.by_route[route](call, found)
            if answer.status == 200:
                self._cache.put(key, answer)
        self._change_after(found)
        return answer

    def _change_after(self, found: Repository) -> None:
        if self._mutations.after_read(found):
            self.mutated += 1

    def _rate_limit(self, call: Call) -> Answer:
        """The remaining quota of every bucket; costs nothing."""
        resources = {
            bucket: {
                name: int(value)
                for header, value in self._windows.of(call.caller, bucket).headers(call.at).items()
                if (name := header.removeprefix("x-ratelimit-")) != "resource"
            }
            for bucket in BUCKETS
        }
        answer = ok({"resources": resources, "rate": resources["core"]})
        answer.cost = 0
        return answer
