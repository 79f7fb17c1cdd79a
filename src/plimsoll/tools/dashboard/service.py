"""What the dashboard knows, and its answers.

Owns `Board`: two desks with the same cluster state. Short questions go to the first, long ones (explain,
what-if, audit) to the second, so that nobody who turns a page waits for somebody's what-if. Changes of a live
cluster are entered at both, a few times a second; each time the cluster state has a new revision.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from plimsoll.errors import ApiError, InputError
from plimsoll.tools.cluster_state import ClusterState
from plimsoll.tools.dashboard import lists, nodes
from plimsoll.tools.dashboard.changes import Change, Touched
from plimsoll.tools.dashboard.devices import DeviceBooks
from plimsoll.tools.dashboard.event_stream import APART, Notices
from plimsoll.tools.dashboard.findings import KEY, Findings, ask_audit
from plimsoll.tools.dashboard.lists import Wish
from plimsoll.tools.dashboard.metrics import show_metrics
from plimsoll.tools.dashboard.query_worker import Answer, Desk
from plimsoll.tools.dashboard.whatif_request import Deadline, read_plan
from plimsoll.tools.explain import explain_claim, explain_pod, summarize_pending
from plimsoll.tools.whatif import run_whatif

#: Seconds after which a long question is answered with an apology (it ends, or is given up, by itself).
PATIENCE = 30.0
#: How often it is looked whether the cluster can be read, when nothing is heard of it.
_LOOK_SECONDS = 1.0


class Board:
    """Everything the page can ask."""

    def __init__(
        self, cluster_state: ClusterState, *, live: bool = False, patience: float = PATIENCE
    ) -> None:
        self.revision = 1
        self.live = live
        self.notices = Notices()
        #: What cannot be read at the moment.
        self.troubles: Callable[[], list[str]] = list
        self._patience = patience
        self._front = Desk(cluster_state)
        self._back: Desk | None = None
        self._books = nodes.NodeBooks()
        self._devices = DeviceBooks()
        self._namespaces = lists.Namespaces()
        self._changed = asyncio.Event()
        self._making = asyncio.Lock()
        self._findings = Findings(self._second_desk, self._tell_findings)

    @property
    def cluster_state(self) -> ClusterState:
        return self._front.cluster_state

    # -- as time goes by

    def hear(self, change: Change) -> None:
        """Something has changed."""
        self._front.hear(change)
        if self._back is not None:
            self._back.hear(change)
        self._changed.set()

    async def keep_up(self) -> None:
        """Enter changes until cancelled, and tell who listens."""
        troubles = self.troubles()
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(_LOOK_SECONDS):
                    await self._changed.wait()
            if self._changed.is_set():
                self._changed.clear()
                await self.catch_up()
                await asyncio.sleep(APART)
            if (now := self.troubles()) != troubles:
                troubles = now
                self.notices.tell(self.revision, Touched(kinds={"Trouble"}))

    async def catch_up(self) -> None:
        """Enter what has been heard of."""

        def entered(touched: Touched) -> int:
            if touched:
                self.revision += 1
                for kept in (self._books, self._devices, self._namespaces):
                    kept.touch(touched)
                self.notices.tell(self.revision, touched)
            return self.revision

        await self._front.catch_up(entered)
        if self._back is not None and not self._back.busy:
            await self._back.catch_up(lambda _: self.revision)

    async def warm_up(self) -> None:
        """Have the books ready before anybody asks."""
        await self.nodes()

    async def close(self) -> None:
        self.notices.end()
        self._findings.cancel()

    # -- short questions

    async def overview(self) -> Answer:
        self._findings.want(self.revision)
        findings, troubles = self._findings.counts, self.troubles()

        def question() -> dict[str, Any]:
            extra = {"live": self.live, "findings": findings, "troubles": troubles}
            return {**nodes.overview(self.cluster_state, self._books, self._devices), **extra}

        key = ("overview", tuple((findings or {}).items()), tuple(troubles))
        return await self._front.ask(key, question)

    async def nodes(self) -> Answer:
        return await self._front.ask(
            "nodes", lambda: nodes.all_nodes(self.cluster_state, self._books, self._devices)
        )

    async def node(self, name: str) -> Answer:
        return await self._front.ask(("node", name), lambda: nodes.one_node(self.cluster_state, name))

    async def devices(self, wish: Wish) -> Answer:
        return await self._front.ask(
            ("devices", wish), lambda: lists.list_devices(self.cluster_state, wish, self._devices)
        )

    async def pools(self, wish: Wish) -> Answer:
        return await self._front.ask(
            ("pools", wish), lambda: lists.list_pools(self.cluster_state, wish, self._devices)
        )

    async def claims(self, wish: Wish) -> Answer:
        return await self._front.ask(("claims", wish), lambda: lists.list_claims(self.cluster_state, wish))

    async def namespaces(self, wish: Wish) -> Answer:
        return await self._front.ask(
            ("namespaces", wish), lambda: lists.list_namespaces(self.cluster_state, wish, self._namespaces)
        )

    async def metrics(self) -> Answer:
        return await self._front.ask(
            "metrics", lambda: show_metrics(self.cluster_state, self._books, self._devices)
        )

    # -- long ones

    async def pods(self, wish: Wish) -> Answer:
        if wish.state != "pending":
            return await self._front.ask(("pods", wish), lambda: lists.list_pods(self.cluster_state, wish)[0])
        return await self._ask_long(("pods", wish), lambda desk: _pending(desk.cluster_state, wish))

    async def explain_pod(self, namespace: str, name: str) -> Answer:
        def question(desk: Desk) -> Any:
            return explain_pod(desk.cluster_state, _named(desk.cluster_state.pod, name, namespace)).as_json()

        return await self._ask_long(("explain pod", namespace, name), question)

    async def explain_claim(self, namespace: str, name: str) -> Answer:
        def question(desk: Desk) -> Any:
            return explain_claim(
                desk.cluster_state, _named(desk.cluster_state.claim, name, namespace)
            ).as_json()

        return await self._ask_long(("explain claim", namespace, name), question)

    async def audit(self) -> Answer:
        answer = await self._ask_long(KEY, ask_audit)
        self._findings.hear(answer)
        return answer

    async def whatif(self, plan: Any) -> Answer:
        question = read_plan(plan)
        tick = Deadline(self._patience)
        return await self._ask_long(
            None, lambda desk: run_whatif(desk.cluster_state, question, tick=tick, lent=True).as_json()
        )

    async def _ask_long(self, key: object, question: Callable[[Desk], Any]) -> Answer:
        desk = await self._second_desk()
        asked = asyncio.ensure_future(desk.ask(key, lambda: question(desk)))
        asked.add_done_callback(_look)
        try:
            async with asyncio.timeout(self._patience):
                return await asyncio.shield(asked)
        except TimeoutError:
            text = f"no answer within {self._patience:g} s: ask about less, or with the command line"
            raise ApiError(503, "ServiceUnavailable", text) from None

    async def _second_desk(self) -> Desk:
        async with self._making:
            if self._back is None:
                self._back = await self._front.copy(lambda: self.revision)
            return self._back

    def _tell_findings(self) -> None:
        self.notices.tell(self.revision, Touched(kinds={"Finding"}))


def _pending(cluster_state: ClusterState, wish: Wish) -> dict[str, Any]:
    page, pods = lists.list_pods(cluster_state, wish)
    told = {
        (pod.metadata.namespace, pod.metadata.name): why
        for pod, why in summarize_pending(cluster_state, pods=pods)
    }
    for row in page["items"]:
        row["why"] = told.get((row["namespace"], row["name"])) or row["why"]
    return page


def _named(find: Callable[[str, str], Any], name: str, namespace: str) -> Any:
    try:
        return find(name, namespace)
    except InputError as error:
        raise ApiError(404, "NotFound", str(error)) from None


def _look(asked: asyncio.Future[Answer]) -> None:
    """Somebody has seen how it ended, even if nobody waits any more."""
    if not asked.cancelled():
        asked.exception()
