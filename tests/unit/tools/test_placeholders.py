"""All tools on a cluster with placeholder pods: nothing is counted twice, and placeholders are no pods."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plimsoll.api import codec
from plimsoll.api.core import Namespace, Pod
from plimsoll.controllers.quota.ledger_usage import usage_by_namespace
from plimsoll.errors import InputError
from plimsoll.ledger.placeholders import NAMESPACE, placeholder_owner
from plimsoll.ledger.placement import find_missing_placeholders
from plimsoll.tools.audit import audit
from plimsoll.tools.cluster_state import ClusterObjects, ClusterState
from plimsoll.tools.dashboard.devices import DeviceCache
from plimsoll.tools.dashboard.lists import ListQuery, list_pods
from plimsoll.tools.dashboard.metrics import show_metrics
from plimsoll.tools.dashboard.nodes import NodeRowCache, one_node, overview
from plimsoll.tools.defrag import DefragLimits, DefragTarget, find_moves
from plimsoll.tools.diff import compare_clusters
from plimsoll.tools.dump import Pseudonyms, anonymize
from plimsoll.tools.dump.dump import trees_of
from plimsoll.tools.explain import explain_pod
from plimsoll.tools.fixes import apply_fix, find_fixes
from plimsoll.tools.placeholders import find_faulty
from plimsoll.tools.policies import compare_policies
from plimsoll.tools.report import as_text
from plimsoll.tools.top.nodes import holders, node_rows
from plimsoll.tools.top.pods import pod_rows
from plimsoll.tools.top.top import top
from plimsoll.tools.whatif import Whatif
from tests.build import charging_device, node, resource_slice, result
from tests.build import claim as make_claim
from tests.dumps import make_cluster_state
from tests.sizes import examples
from tests.unit.ledger import samples
from tests.unit.tools.audit.build import NOW, Tree, claim, cpus, found, only, pod
from tests.unit.tools.stock_cluster import (
    namespace,
    owned,
    placeholders_in,
    stock_cluster,
    stock_objects,
    stock_trees,
    with_placeholders,
)

POLICIES = ("AddPerClaim", "Max", "AddPerReference")


def ledger_of(state: ClusterState, name: str = "n1") -> Any:
    row = state.snapshot.row_of(name)
    assert row is not None
    return state.snapshot.ledger(row)


def bound(state: ClusterState) -> set[str]:
    return {each.metadata.full_name for each in state.objects.all(Pod) if each.spec.node_name}


def one(things: Any) -> Any:
    (thing,) = things
    return thing


# -- detection


def test_a_cluster_uses_placeholders_if_it_has_their_namespace_and_stores_no_charges() -> None:
    assert not make_cluster_state(stock_objects()).uses_placeholders
    assert make_cluster_state([*stock_objects(), namespace()]).uses_placeholders
    assert make_cluster_state(
        [each for each in stock_trees() if each["kind"] != "Namespace"]
    ).uses_placeholders
    stored = pod("new", claims=("c",), charges={"c": {"cpu": "4"}})
    stored["metadata"]["creationTimestamp"] = "2026-11-16T00:00:00Z"
    assert not make_cluster_state([*stock_trees(), stored]).uses_placeholders
    stored["metadata"]["creationTimestamp"] = "2026-11-14T00:00:00Z"
    assert make_cluster_state([*stock_trees(), stored]).uses_placeholders


def test_a_namespace_that_appears_is_noticed() -> None:
    state = make_cluster_state(stock_objects())
    assert not state.snapshot.profile.placeholders
    state.set(codec.convert(namespace(), Namespace))
    assert state.snapshot.profile.placeholders


# -- totals


@st.composite
def states(draw: st.DrawFn) -> tuple[ClusterState, ClusterState]:
    """The same node without placeholders, and with some of them."""
    devices = [charging_device(f"d{i}", **draw(samples.rules())) for i in range(5)]
    claims = [make_claim(name, results=[result(f"d{i}")]) for i, name in enumerate(samples.CLAIMS)]
    pods = [
        samples.on(samples.make_pod(f"p{i}", draw(samples.bodies()))) for i in range(draw(st.integers(1, 4)))
    ]
    things = [node(cpu="9"), resource_slice(devices), *claims, *pods]
    plain = ClusterState(ClusterObjects(things))
    state = ClusterState(ClusterObjects([*things, codec.convert(namespace(), Namespace)]))
    missing = {each.metadata.name: each for _, each in find_missing_placeholders(ledger_of(state, "node-1"))}
    for name in draw(st.lists(st.sampled_from(sorted(missing)), unique=True)) if missing else ():
        state.set(missing[name])
    for each in draw(st.lists(st.sampled_from(pods), unique_by=lambda each: each.metadata.name, max_size=1)):
        state.remove(each)
        plain.remove(each)
    return plain, state


@settings(max_examples=examples(80), deadline=None)
@given(states())
def test_lines_add_up_with_placeholders(both: tuple[ClusterState, ClusterState]) -> None:
    plain, state = both
    ledger = ledger_of(state, "node-1")
    requested = {name: amount for name, amount in ledger.requested.items() if amount}
    row = one(node_rows(state))
    assert {each.resource: each.used for each in row.rows if each.used} == requested
    sums: dict[str, int] = {}
    for holder in holders(state, "node-1"):
        sums[holder.resource] = sums.get(holder.resource, 0) + holder.amount
    assert {name: amount for name, amount in sums.items() if amount} == requested
    of_pods: dict[str, int] = {}
    for each in pod_rows(state):
        for name, parts in each.amounts.items():
            of_pods[name] = of_pods.get(name, 0) + sum(parts)
    assert {name: amount for name, amount in of_pods.items() if amount} == requested
    # What a placeholder requests beyond its owner's charge is all that is added.
    rest: dict[str, int] = {}
    for holder in holders(state, "node-1"):
        if holder.stands_for:
            rest[holder.resource] = rest.get(holder.resource, 0) + holder.amount
    before = {name: amount for name, amount in ledger_of(plain, "node-1").requested.items() if amount}
    assert {name: requested.get(name, 0) - before.get(name, 0) for name in {*requested, *before}} == {
        name: rest.get(name, 0) for name in {*requested, *before}
    }


# -- top


def test_top_shows_placeholders_beside_what_they_stand_for() -> None:
    state = stock_cluster()
    text = as_text(top(state, name="n1"), wide=True)
    placeholder = one(p for p in placeholders_in(state.objects.all(Pod)) if p.metadata.name.startswith("p-"))
    line = one(line for line in text.splitlines() if placeholder.metadata.name in line)
    assert "AddPerClaim" in line
    assert "work/p" in line
    assert NAMESPACE not in text
    assert "3 of 110 pods" in text
    assert {row.pod for row in pod_rows(state) if row.node == "n1"} == {"p", "plain"}
    cpu = node_rows(state, names=["n1"])[0].row("cpu")
    assert (cpu.requests, cpu.claims, cpu.free) == (3000, 4000, 1000)


def test_top_shows_stale_placeholders() -> None:
    trees = [each for each in stock_trees() if each["metadata"]["name"] not in ("p", "c")]
    state = make_cluster_state(trees)
    holder = one(each for each in holders(state, "n1") if each.stands_for)
    assert (holder.amount, holder.namespace, holder.stands_for) == (4000, NAMESPACE, "pod work/p")
    assert "(for pod work/p)" in as_text(top(state, name="n1"), wide=True)
    cpu = node_rows(state, names=["n1"])[0].row("cpu")
    assert (cpu.requests, cpu.claims) == (2000, 4000)


# -- explain


def test_explain_names_what_a_placeholder_stands_for() -> None:
    state = stock_cluster()
    texts = {
        str(placeholder_owner(each)): as_text(explain_pod(state, each))
        for each in placeholders_in(state.objects.all(Pod))
    }
    assert texts.keys() == {"pod work/p", "claim work/pool"}
    for owner, text in texts.items():
        assert f"placeholder of {owner} on node" in text
        assert "requests cpu 4" in text


def test_explain_of_a_pod_names_its_placeholder_or_that_it_is_missing() -> None:
    state = stock_cluster()
    text = " ".join(as_text(explain_pod(state, state.pod("p"))).split())
    assert f"requested by placeholder {NAMESPACE}/p-" in text
    assert "missing" not in text
    for names, missing in ((("pool",), "p"), (("p",), "a")):
        state = make_cluster_state(with_placeholders(stock_objects(), *names))
        text = " ".join(as_text(explain_pod(state, state.pod(missing))).split())
        assert "with cpu 4 is missing: kube-scheduler and the kubelet of node" in text


def rejected(tree: Tree) -> Tree:
    return {**tree, "status": {"phase": "Failed", "reason": "OutOfcpu", "message": "Node didn't have enough"}}


def test_explain_of_a_pod_whose_placeholder_was_rejected() -> None:
    trees = [rejected(each) if each["metadata"]["name"].startswith("p-") else each for each in stock_trees()]
    state = make_cluster_state(trees)
    text = " ".join(as_text(explain_pod(state, state.pod("p"))).split())
    assert "was rejected (OutOfcpu: Node didn't have enough)" in text


def test_explain_of_a_pending_pod_counts_once() -> None:
    state = make_cluster_state([*stock_trees(), pod("new", "3", on="")])
    text = as_text(explain_pod(state, state.pod("new")))
    assert "2 of 8 free (0 requests, 6 claims, 0 overhead)" in text


# -- audit


def test_audit_finds_missing_placeholders() -> None:
    for check in ("PLM018", "PLM019"):
        assert found(check, *stock_trees()) == []
        assert found(check, *stock_objects()) == []
    finding = only("PLM018", *with_placeholders(stock_objects(), "pool"))
    assert finding.subject == "Pod/work/p"
    assert "with cpu 4 is missing" in finding.message
    assert "within a minute" in finding.fix
    finding = only("PLM018", *with_placeholders(stock_objects(), "p"))
    assert finding.subject == "ResourceClaim/work/pool"
    assert finding.evidence == ("used by Pod/work/a",)


def test_audit_finds_charges_that_no_scheduler_sees() -> None:
    """Without the namespace of placeholders, nothing shows kube-scheduler what is in annotations only."""
    assert found("PLM065", *stock_trees()) == []
    one, two = found("PLM065", *stock_objects())
    assert (one.subject, two.subject) == ("Node/n1", "Node/n2")
    assert "do not count cpu 4 that claims take" in one.message
    assert one.evidence == ("charged in an annotation only: Pod/work/p",)
    assert "cpu 4" in two.message, "the shared claim counts once"
    stored = [*stock_objects(), pod("new", claims=("c",), charges={"c": {"cpu": "4"}})]
    assert len(found("PLM065", *stored)) == 2, "charges in the status are seen"


def test_audit_names_what_to_move_for_a_rejected_placeholder() -> None:
    trees = [rejected(each) if each["metadata"]["name"].startswith("p-") else each for each in stock_trees()]
    finding = only("PLM018", *trees, owned(pod("late", "2")))
    assert "was rejected (OutOfcpu" in finding.message
    assert finding.evidence == ("node n1 has cpu 1 too little for it",)
    assert finding.proven
    assert "kubectl delete pod -n work" in finding.fix
    name = finding.fix.rpartition(" ")[2]
    left = [each for each in (*trees, owned(pod("late", "2"))) if each["metadata"]["name"] != name]
    assert found("PLM001", *left) == []


def test_audit_counts_the_pod_that_a_missing_placeholder_is() -> None:
    trees = with_placeholders(stock_objects(), "pool")
    trees[0]["status"]["allocatable"]["pods"] = "2"
    finding = only("PLM018", *trees)
    assert finding.evidence == ("node n1 has pods 1 too little for it",)
    assert "kubectl delete pod -n work" in finding.fix


def test_a_drained_node_and_a_server_that_stores_charges_need_no_placeholders() -> None:
    trees = [*stock_objects(), namespace()]
    assert len(found("PLM018", *trees)) == 2
    for each in trees:
        if each["kind"] == "Node":
            each["spec"] = {"unschedulable": True}
    assert found("PLM018", *trees) == []
    stored = pod("new", claims=("c",), charges={"c": {"cpu": "4"}})
    stored["metadata"]["creationTimestamp"] = "2026-11-16T00:00:00Z"
    assert found("PLM018", *stock_objects(), namespace(), stored) == []


def test_audit_finds_placeholders_that_do_not_match() -> None:
    trees = [each for each in stock_trees() if each["metadata"]["name"] not in ("p", "c")]
    finding = only("PLM019", *trees)
    assert "is the placeholder of pod work/p, which is not on node n1" in finding.message
    assert f"kubectl delete pod -n {NAMESPACE} p-" in finding.fix
    trees = stock_trees()
    for each in placeholders_in(trees):
        each["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "3"
    messages = [finding.message for finding in found("PLM019", *trees)]
    assert len(messages) == 2
    assert all("is charged cpu 4 beyond its requests, and requests cpu 3" in each for each in messages)
    for each in placeholders_in(trees):
        each["metadata"]["creationTimestamp"] = "2026-11-15T00:59:00Z"
    assert found("PLM019", *trees) == []


def test_audit_counts_no_placeholder_as_a_pod() -> None:
    report = audit(stock_cluster(), now=NOW, live=True)
    assert report.findings == ()
    assert "4 pods" in as_text(report)


# -- whatif, defrag and fixes


def dra_pod(name: str = "new") -> list[Tree]:
    return [claim(f"{name}-c", klass="cpu") | {"status": {}}, pod(name, claims=(f"{name}-c",), on="")]


def with_capacity(trees: list[Tree], amount: str = "4") -> list[Tree]:
    for each in trees:
        if each["kind"] == "ResourceClaim" and not each["status"]:
            exactly = each["spec"]["devices"]["requests"][0]["exactly"]
            exactly["capacity"] = {"requests": {"dra.cpu/cpu": amount}}
    return trees


@pytest.mark.parametrize("policy", POLICIES)
def test_scheduled_pods_get_placeholders_that_go_with_them(policy: str) -> None:
    state = stock_cluster(policy)
    trees = with_capacity(dra_pod(), "1")
    with Whatif(state) as whatif:
        before = {name: dict(ledger_of(whatif.cluster_state, name).requested) for name in ("n1", "n2")}
        pods = bound(whatif.cluster_state)
        with whatif.branch() as branch:
            branch.add(*trees)
            outcome = branch.schedule()
            on = one(outcome.placed).node
            ledger = ledger_of(branch.cluster_state, on)
            assert ledger.verify() == []
            assert ledger.requested["cpu"] - before[on]["cpu"] in (1000, 2000)
            made = bound(branch.cluster_state) - pods - {"work/new"}
            shared = (
                placeholder_owner(branch.cluster_state.pod(*reversed(one(made).split("/")))) if made else None
            )
            assert (shared is not None) == (policy != "Max")
            branch.remove("Pod/work/new")
            assert bound(branch.cluster_state) == pods
            assert ledger.requested == before[on]
        assert bound(whatif.cluster_state) == pods
        assert {name: ledger_of(whatif.cluster_state, name).requested for name in ("n1", "n2")} == before


def test_drains_evictions_and_removals_take_placeholders_along() -> None:
    with Whatif(stock_cluster()) as whatif:
        drain = whatif.drain("n2")
        assert drain.blocked == {}
        assert whatif.state().keys() == {("work", name) for name in ("p", "plain", "a", "b")}
        assert {each.pod[0] for each in whatif.evicted} == {"work"}
        assert ledger_of(whatif.cluster_state, "n2").requested.get("cpu", 0) == 0
        whatif.remove("Node/n1")
        assert {each.pod[0] for each in whatif.evicted} == {"work"}
        assert placeholders_in(whatif.cluster_state.objects.all(Pod)) == []


def test_a_shared_claim_keeps_its_placeholder_until_its_last_pod_goes() -> None:
    with Whatif(stock_cluster()) as whatif:
        whatif.remove("Pod/work/a")
        assert ledger_of(whatif.cluster_state, "n2").requested["cpu"] == 5000
        whatif.remove("Pod/work/b")
        assert not ledger_of(whatif.cluster_state, "n2").has_placeholders


def test_a_placeholder_is_removed_only_with_its_pod() -> None:
    state = stock_cluster()
    names = [each.metadata.full_name for each in placeholders_in(state.objects.all(Pod))]
    with Whatif(state) as whatif:
        for name in names:
            with pytest.raises(InputError, match=r"is the placeholder of .* and removed with it"):
                whatif.remove(f"Pod/{name}")


def test_another_policy_makes_other_placeholders() -> None:
    trees = stock_objects()
    for each in trees:
        if each["kind"] == "DeviceClass":
            del each["metadata"]["annotations"]
        elif each["kind"] == "ResourceSlice":
            each["spec"]["devices"] = [cpus(8)]
    with Whatif(make_cluster_state(with_placeholders(trees))) as whatif:
        assert ledger_of(whatif.cluster_state).requested["cpu"] == 7000
        whatif.replace_policy("Max")
        ledger = ledger_of(whatif.cluster_state)
        assert ledger.requested["cpu"] == 6000
        placeholder = one(placeholders_in(entry.pod for entry in ledger.entries.values()))
        assert placeholder.spec.containers[0].resources.requests["cpu"].canonical() == "3"


def test_policies_count_placeholders_once() -> None:
    with_them, without = (
        compare_policies(stock_cluster()),
        compare_policies(make_cluster_state(stock_objects())),
    )
    for column in ("as is", "AddPerClaim", "Max"):
        found = [
            {
                (each.node, each.resource): each.charged.get(column, 0)
                for each in report.nodes
                if each.node == "n1"
            }
            for report in (with_them, without)
        ]
        assert found[0] == found[1], column


def test_defrag_moves_no_placeholders() -> None:
    trees = [*stock_trees(), pod("big", "3", on="")]
    found = find_moves(make_cluster_state(trees), DefragTarget(pod="work/big"), DefragLimits(bare=True))
    assert found.movable == 4
    assert found.fits
    assert {each.pod[0] for each in found.moves} == {"work"}


def test_fixes_remove_no_placeholders() -> None:
    trees = [each for each in stock_trees() if each["metadata"]["name"] != "n2" and "on n2" not in str(each)]
    state = make_cluster_state(
        [*(each for each in trees if each.get("spec", {}).get("nodeName") != "n2"), pod("big", "5", on="")]
    )
    big = state.pod("big")
    report = find_fixes(state, big)
    removals = [fix for fix in report.fixes if "pod work/p" in fix.text]
    assert report.fixes
    assert all(NAMESPACE not in fix.text for fix in report.fixes)
    for fix in removals:
        after, _ = apply_fix(state, big, fix)
        assert not ledger_of(after).has_placeholders
    assert removals


# -- the others


def test_diff_shows_pods_only() -> None:
    changes = compare_clusters(stock_cluster(), make_cluster_state(stock_objects()))
    assert [finding.id for finding in changes.new_findings] == ["PLM065", "PLM065"]
    assert NAMESPACE not in str(replace(changes, new_findings=()))


def test_the_dashboard_lists_pods_only() -> None:
    state = stock_cluster()
    nodes, devices = NodeRowCache(), DeviceCache()
    listed, _ = list_pods(state, ListQuery())
    assert listed["total"] == 4
    assert overview(state, nodes, devices)["counts"]["pods"] == 4
    page = one_node(state, "n1", devices)
    rows = {each["name"]: each for each in page["pods"]}
    assert rows.keys() == {"p", "plain"}
    assert rows["p"]["placeholder"].startswith("p-")
    assert page["podCount"] == 3
    lines = show_metrics(state, nodes, devices).decode().splitlines()
    assert 'plimsoll_pods{state="bound"} 4' in lines
    assert 'plimsoll_pods{state="placeholder"} 2' in lines


def test_a_dump_counts_the_same() -> None:
    state = stock_cluster()
    again = make_cluster_state(trees_of(state.objects))
    for name in ("n1", "n2"):
        assert ledger_of(again, name).requested == ledger_of(state, name).requested
    assert again.uses_placeholders


def test_an_anonymized_dump_counts_the_same() -> None:
    trees = [*stock_trees(), *(owned(pod(f"web-{number}", "0", on="n1")) for number in range(2))]
    state = make_cluster_state(trees)
    shared = ClusterState(anonymize(state.objects, Pseudonyms(b"0123456789abcdef")))
    assert shared.uses_placeholders
    assert [row.rows for row in node_rows(shared)] == [row.rows for row in node_rows(state)]
    assert [each for row in shared.snapshot.rows() for each in find_faulty(shared, row)] == []
    assert audit(shared, now=NOW, live=True).findings == ()


def test_quotas_count_charges_in_the_namespace_of_the_pods() -> None:
    ledgers = [ledger_of(stock_cluster(), name) for name in ("n1", "n2")]
    usage = usage_by_namespace(ledgers)
    without = usage_by_namespace(
        [ledger_of(make_cluster_state(stock_objects()), name) for name in ("n1", "n2")]
    )
    assert usage["work"] == without["work"]
    # What pods draw from the pool is in their requests, too.
    assert usage[NAMESPACE]["requests.cpu"].canonical() == "2"
