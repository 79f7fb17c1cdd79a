"""The stand-in answers random requests as the embedded server does."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from datetime import UTC, datetime
from operator import itemgetter
from random import Random
from typing import Any

import pytest

from plimsoll.api.gates import Gates
from plimsoll.apiserver.api import Api
from plimsoll.apiserver.auth.users import ADMIN
from plimsoll.apiserver.context import ApiContext
from plimsoll.apiserver.handlers import write
from plimsoll.apiserver.handlers.discovery import MAJOR, MINOR, build_aggregated_document
from plimsoll.apiserver.in_process import InProcessTransport
from plimsoll.apiserver.storage import Store
from plimsoll.apiserver.validation.pod import binding, eviction, prepare_create
from plimsoll.apiserver.validation.pod.conditions import set_condition
from plimsoll.client.transport import Reply, Request
from tests import virtual_time
from tests.simulation.api import ApiServer, Change, Watch
from tests.simulation.api.kinds import discovery_document
from tests.simulation.api_requests import Dice, choose_weights, next_request, setup_requests, watch_objects
from tests.sizes import seeds

Tree = dict[str, Any]

#: Sequences of one test.
_SEQUENCES = 20
_STOCK = Gates.parse("DRANodeAllocatableResources=false", Gates.default())


class Uids:
    """Numbered UIDs; generated names end in digits of the last one."""

    def __init__(self) -> None:
        self.last = ""
        self._count = 0

    def __call__(self) -> str:
        self._count += 1
        self.last = f"00000000-0000-4000-8000-{self._count:012d}"
        return self.last


class Pair:
    """Embedded server and stand-in with the same clock, which get the same requests."""

    def __init__(self, *, alpha_fields: bool) -> None:
        self.now = 1_800_000_000.0
        self.uids = Uids()
        self.server = ApiServer(now=lambda: self.now, new_uid=Uids(), alpha_fields=alpha_fields)
        self.server.on_write = lambda change: self._changes.append((change.new, json.dumps(change.new)))
        self.store = Store.open(None)
        context = ApiContext.for_store(
            self.store,
            gates=Gates.default() if alpha_fields else _STOCK,
            now=lambda: datetime.fromtimestamp(self.now, UTC),
            new_uid=self.uids,
        )
        self.transport = InProcessTransport(Api(context).handle, ADMIN)
        self.history: list[str] = []
        self._changes: list[tuple[Tree | None, str]] = []  # stored trees, and their text at that time
        self._watches: list[tuple[str, Watch, asyncio.Task[list[Tree]]]] = []

    async def compare(self, request: Request) -> Reply:
        """Send a request to both and compare the replies."""
        expected = await self.transport.send(request)
        found = self.server.handle(request, "test")
        self._note(request, found)
        assert found.status == expected.status, self._report(request, expected, found)
        assert simplify(found.body) == simplify(expected.body), self._report(request, expected, found)
        for name in ("retry-after",):
            assert found.headers.get(name) == expected.headers.get(name), self._report(
                request, expected, found
            )
        return found

    async def watch(self, request: Request) -> None:
        """Start a watch on both; `finish` compares their frames."""
        found = self.server.open_watch(request, "test")
        started: asyncio.Future[Reply | None] = asyncio.get_running_loop().create_future()

        async def collect() -> list[Tree]:
            frames = []
            async with self.transport.stream(request) as stream:
                chunks = stream.chunks
                if stream.status != 200:
                    started.set_result(Reply(stream.status, {}, b"".join([each async for each in chunks])))
                    return []
                started.set_result(None)
                async for chunk in chunks:
                    frames += [json.loads(line) for line in chunk.splitlines()]
            return frames

        task = asyncio.create_task(collect())
        refused = await started
        for _ in range(3):  # the initial events are those of this moment
            await asyncio.sleep(0)
        if refused is not None or isinstance(found, Reply):
            self._note(request, found if isinstance(found, Reply) else Reply(200, {}, b""))
            assert isinstance(found, Reply), (refused, request)
            assert refused is not None, (found, request)
            assert (refused.status, simplify(refused.body)) == (found.status, simplify(found.body))
            return
        self._note(request, Reply(200, {}, b""))
        self._watches.append((f"{request.path} {request.query}", found, task))

    async def finish(self) -> None:
        """Compare the watches; check that no stored tree was modified."""
        assert [text for tree, text in self._changes if json.dumps(tree) != text] == []
        for name, watch, task in self._watches:
            frames = [json.loads(line) for line in watch.take()]
            expected = await task  # ends in virtual time
            shown = "\n".join(self.history[-80:])
            assert [_frame(each) for each in frames if _counts(each)] == [
                _frame(each) for each in expected if _counts(each)
            ], f"{name}\n{shown}"

    def _note(self, request: Request, reply: Reply) -> None:
        body = (request.body or b"").decode()[:600]
        self.history.append(
            f"{request.method} {request.path} {dict(request.query)} {request.headers['Content-Type'][12:20]}"
            f" {body} -> {reply.status}"
        )

    def _report(self, request: Request, expected: Reply, found: Reply) -> str:
        return "\n".join(
            (
                *self.history[-40:],
                f"embedded server: {expected.status} {expected.body.decode()[:3000]}",
                f"stand-in:        {found.status} {found.body.decode()[:3000]}",
            )
        )


def _counts(frame: Tree) -> bool:
    """Return whether a frame is compared: all but the bookmarks that come by the clock."""
    return frame["type"] != "BOOKMARK" or "annotations" in frame["object"]["metadata"]


def _frame(frame: Tree) -> tuple[str, Any]:
    return frame["type"], simplify(json.dumps(frame["object"]).encode())


def simplify(body: bytes) -> Any:
    """Return what is compared of a body: of errors not the texts, of objects all but the managed fields."""
    try:
        tree = json.loads(body)
    except ValueError:
        return body
    if not isinstance(tree, dict):
        return tree
    if tree.get("kind") == "Status":
        details = dict(tree.get("details") or {})
        causes = details.pop("causes", [])
        metadata = {name: bool(value) for name, value in tree.get("metadata", {}).items()}
        fields = sorted({(each.get("field") or each["reason"]).partition("[")[0] for each in causes})
        return tree["status"], tree.get("code"), tree.get("reason"), details, fields, metadata
    for each in (tree, *(tree.get("items") or ())):
        meta = each.get("metadata") or {}
        meta.pop("managedFields", None)
        if meta.get("creationTimestamp", "") is None:  # of a bookmark
            del meta["creationTimestamp"]
    return tree


def _set_condition(conditions: Sequence[Tree], condition: Tree, now: str) -> list[Tree]:
    """Set a condition without a null lastProbeTime, which the next write of the status would drop."""
    found = set_condition(conditions, condition, now)
    return [{name: value for name, value in each.items() if value is not None} for each in found]


async def play(seed: int) -> None:
    """Play one sequence, in every third case on servers without the alpha fields."""
    pair, rng = Pair(alpha_fields=seed % 3 != 0), Random(seed)
    dice = Dice(rng, pair.server.list_trees)
    weights = choose_weights(dice)
    pages: list[Request] = []  # to be requested later
    with pytest.MonkeyPatch.context() as patched:
        for module in (binding, eviction, prepare_create):
            patched.setattr(module, "set_condition", _set_condition)
        patched.setattr(write, "generate_name", lambda prefix: prefix[:58] + pair.uids.last[-5:])
        own = sorted(
            (each["metadata"] for each in pair.server.list_trees("namespaces")), key=itemgetter("uid")
        )
        for meta in own:  # the namespaces that the stand-in begins with
            body = {"metadata": {"name": meta["name"]}}
            await pair.transport.send(dice.send("POST", "/api/v1/namespaces", body))
        for request in setup_requests(dice):
            await pair.compare(request)
        for _ in range(rng.choice((15, 30, 60))):
            pair.now += rng.choice((0.0, 0.4, 3.0))
            if rng.random() < 0.06:
                await pair.watch(watch_objects(dice))
            has_page = pages and rng.random() < 0.4
            request = pages.pop(rng.randrange(len(pages))) if has_page else next_request(dice, weights)
            reply = await pair.compare(request)
            pages += _next_page(request, reply)
        await pair.finish()
    await pair.store.close()


def _next_page(request: Request, reply: Reply) -> list[Request]:
    """Return the request for the next page of a list, if there is one."""
    if request.method != "GET" or reply.status != 200:
        return []
    token = json.loads(reply.body).get("metadata", {}).get("continue")
    dropped = ("continue", "resourceVersion", "resourceVersionMatch")
    query = [each for each in request.query if each[0] not in dropped]
    return [request._replace(query=(*query, ("continue", token)))] if token else []


@pytest.mark.parametrize("seed", seeds(40))
def test_answers_are_those_of_the_embedded_server(seed: int) -> None:
    for number in range(_SEQUENCES):
        virtual_time.run(play(seed * _SEQUENCES + number))


# -- parts that the embedded server does by the clock, or has in other forms


class Client:
    """Client of a stand-in with some objects."""

    def __init__(self) -> None:
        self.server = ApiServer(now=lambda: 1_800_000_000.0, new_uid=Uids())
        self.changes: list[Change] = []
        self.server.on_write = self.changes.append

    def send(
        self, method: str, path: str, body: Any = None, content: str = "application/json", **query: str
    ) -> Tree:
        reply = self.server.handle(self._request(method, path, body, content, query), "someone")
        return dict(json.loads(reply.body))

    def watch(self, path: str, **query: str) -> Watch:
        found = self.server.open_watch(self._request("GET", path, None, "", query), "someone")
        assert isinstance(found, Watch), found
        return found

    def create(self, *names: str) -> None:
        for name in names:
            self.send("POST", LEASES, {"metadata": {"name": name}})

    @staticmethod
    def _request(method: str, path: str, body: Any, content: str, query: dict[str, str]) -> Request:
        raw = json.dumps(body).encode() if body is not None else None
        return Request(method, path, tuple(query.items()), {"Content-Type": content, "User-Agent": "x"}, raw)


LEASES = "/apis/coordination.k8s.io/v1/namespaces/default/leases"


def frames(watch: Watch) -> list[tuple[str, Any]]:
    """Return the type and the name, revision or code of each frame."""
    found = []
    for line in watch.take():
        frame = json.loads(line)
        meta = frame["object"]["metadata"]
        shown = meta.get("name") or meta.get("resourceVersion") or frame["object"].get("code")
        found.append((frame["type"], shown))
    return found


def test_a_compacted_history_is_gone() -> None:
    client = Client()
    client.create("a", "b", "c", "d")
    first = client.send("GET", LEASES, limit="1")
    since = first["metadata"]["resourceVersion"]
    client.create("e", "f")
    client.server.compact(1)
    watch = client.watch(LEASES, resourceVersion=since)
    assert (frames(watch), watch.ended) == ([("ERROR", 410)], True)
    assert frames(client.watch(LEASES, resourceVersion=str(int(since) + 1))) == [("ADDED", "f")]
    refused = client.send("GET", LEASES, limit="1", **{"continue": first["metadata"]["continue"]})
    assert (refused["code"], refused["reason"]) == (410, "Expired")
    # The token of the error continues with the current objects.
    rest = client.send("GET", LEASES, **{"continue": refused["metadata"]["continue"]})
    assert [each["metadata"]["name"] for each in rest["items"]] == ["b", "c", "d", "e", "f"]
    assert client.send("GET", LEASES, resourceVersion=since, resourceVersionMatch="Exact")["code"] == 410


def test_pages_show_one_revision() -> None:
    client = Client()
    client.create("a", "b", "c")
    page = client.send("GET", LEASES, limit="2")
    client.send("DELETE", f"{LEASES}/c")
    client.create("d")
    rest = client.send("GET", LEASES, limit="2", **{"continue": page["metadata"]["continue"]})
    assert [each["metadata"]["name"] for each in rest["items"]] == ["c"]
    assert rest["metadata"] == {"resourceVersion": page["metadata"]["resourceVersion"]}


def test_watches_announce_waiting_frames_until_they_are_closed() -> None:
    client = Client()
    calls: list[int] = []
    watch = client.watch(LEASES, resourceVersion="0", allowWatchBookmarks="true")
    other = client.watch(LEASES, resourceVersion="0")
    watch.on_event = lambda: calls.append(1)
    client.create("a")
    client.send("PUT", f"{LEASES}/a", client.send("GET", f"{LEASES}/a"))  # changes nothing
    client.server.send_bookmarks()
    assert frames(watch) == [("ADDED", "a"), ("BOOKMARK", "5")]
    assert len(calls) == 2
    watch.close()
    client.create("b")
    assert (frames(watch), frames(other)) == ([], [("ADDED", "a"), ("ADDED", "b")])


def test_changes_are_reported_with_their_author() -> None:
    client = Client()
    client.create("a")
    client.create("a")
    client.send("DELETE", f"{LEASES}/a", {"dryRun": ["All"]})
    client.send("DELETE", f"{LEASES}/a")
    added, deleted = client.changes
    assert (added.type, added.resource, added.old, added.user) == ("ADDED", "leases", None, "someone")
    assert (deleted.type, deleted.new, deleted.request) == ("DELETED", None, f"DELETE {LEASES}/a")
    assert deleted.old is added.new
    assert added.new is not None
    assert (added.revision, added.new["metadata"]["resourceVersion"]) == (5, "5")
    assert client.server.list_trees("leases") == []


def test_kinds_are_discovered_as_from_the_embedded_server() -> None:
    client = Client()
    version = client.send("GET", "/version")
    assert (version["major"], version["minor"]) == (MAJOR, MINOR)
    for root in ("api", "apis"):
        ours = discovery_document(f"/{root}", aggregated=True)
        theirs = {
            (group["metadata"].get("name", ""), version["version"], each["resource"]): each
            for group in json.loads(build_aggregated_document(root, "v2")[0])["items"]
            for version in group["versions"]
            for each in version["resources"]
        }
        assert ours is not None
        for group in json.loads(ours)["items"]:
            for version in group["versions"]:
                for each in version["resources"]:
                    known = theirs[group["metadata"].get("name", ""), version["version"], each["resource"]]
                    assert each == {name: known[name] for name in each}
    # The documents of a single group, by which clients look for other versions of a kind.
    group = client.send("GET", "/apis/resource.k8s.io")
    assert group["preferredVersion"] == {"groupVersion": "resource.k8s.io/v1", "version": "v1"}
    names = {each["name"] for each in client.send("GET", "/apis/resource.k8s.io/v1")["resources"]}
    assert {"resourceclaims", "resourceclaims/status", "resourceslices"} <= names
    assert client.send("GET", "/apis/unknown.k8s.io")["code"] == 404
