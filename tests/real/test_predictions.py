"""`plimsoll whatif --as` compared with the real kube-scheduler 1.36, and all commands on kubectl dumps.

Random clusters are furnished on a real control plane, once with DRANodeAllocatableResources and once as it
comes. Pods are created one by one; what was predicted from a dump taken before they came must be what
happened: placed or not, the reasons in the same words, what claims charge, the devices, and a node that has
the best score (among equals kube-scheduler takes one by chance). Then everything that can be asked is asked
about the dump taken after.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from plimsoll.tools.cluster_state import Source, read_cluster_state
from tests.directories import short_directory
from tests.questions.asking import COMMANDS, ask
from tests.real.kubelet_sums import amount_of, sums_of
from tests.real.oracle import ON, PROGRAMS, Decision, Oracle, run_oracle
from tests.real.predictor import Prediction, Predictor, differences, same_reason
from tests.real.programs import missing
from tests.real.random_clusters import NS, RandomCluster, Tree, random_story
from tests.unit.tools.dashboard.pages import visiting

_MISSING = missing(*PROGRAMS)
pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(_MISSING), reason=_MISSING or "-")]
SEEDS = (3, 5, 13, 24, 44, 55)
CLUSTERS = {"kube-1.36": ON, "kube-1.36-default": ""}
#: Whether a pod with such rules is placed can depend on pods that come after it.
_TOGETHER = ("affinity", "topologySpreadConstraints")


@pytest.mark.parametrize("stock", CLUSTERS)
async def test_predictions_match_the_real_scheduler(tmp_path: Path, stock: str) -> None:
    async with asyncio.timeout(300), run_oracle(tmp_path / "plane", CLUSTERS[stock]) as oracle:
        for seed in SEEDS:
            directory = tmp_path / str(seed)
            directory.mkdir()
            await play(oracle, random_story(seed), stock, directory)


async def play(oracle: Oracle, random_cluster: RandomCluster, stock: str, directory: Path) -> None:
    await oracle.furnish(random_cluster.cluster)
    waiting = [
        found.name for found in [await oracle.decide(pod) for pod in random_cluster.first] if not found.node
    ]
    before, after, batch = directory / "before.yaml", directory / "after.yaml", directory / "batch.yaml"
    before.write_bytes(oracle.dump())
    foresight = Predictor(before, stock)
    if stock == "kube-1.36-default":
        # A scheduler without the gate does not heed what devices say they charge.
        outright = Predictor(with_mappings(before, random_cluster, directory / "outright.yaml"), stock)
    else:
        outright = foresight
    turns: list[tuple[Tree, Prediction, Decision]] = []
    wrong: list[str] = []
    for pod in random_cluster.batch:
        guess = foresight.predict(pod)
        real = await oracle.decide(pod)
        found = [*differences(guess, real)]
        if outright is not foresight:
            found += differences(outright.predict(pod), real)
            outright.learn(real)
        wrong += [f"seed {random_cluster.seed}, {real.name}: {text}" for text in found]
        foresight.learn(real)
        turns.append((pod, guess, real))
    assert wrong == []
    after.write_bytes(oracle.dump())
    batch.write_text(yaml.safe_dump_all(random_cluster.batch))
    check_command(before, batch, waiting, stock, turns)
    check_sums(after)
    check_explanations(after, turns, stock)
    await check_questions(after, batch)


def with_mappings(dump: Path, random_cluster: RandomCluster, path: Path) -> Path:
    """Return a dump with the mappings that a server without the gate dropped from its slices."""
    given = {
        tree["metadata"]["name"]: tree for tree in random_cluster.cluster if tree["kind"] == "ResourceSlice"
    }
    whole = yaml.load(dump.read_bytes(), yaml.CSafeLoader)
    for tree in whole["items"]:
        if tree["kind"] == "ResourceSlice" and tree["metadata"]["name"] in given:
            tree["spec"]["devices"] = given[tree["metadata"]["name"]]["spec"].get("devices")
    path.write_text(yaml.dump(whole, Dumper=yaml.CSafeDumper))
    return path


def check_command(
    before: Path, batch: Path, waiting: list[str], stock: str, turns: list[tuple[Tree, Prediction, Decision]]
) -> None:
    """Compare the prediction of the full batch, up to the first node that was chosen at random."""
    without = [word for name in waiting for word in ("--remove", f"Pod/{NS}/{name}")]
    answer = ask(*("whatif", "-f", before, "--add", batch, "--as", stock, "-o", "json"), *without).check()
    assert answer.code in (0, 1), answer.err
    found = {pod["pod"]: pod for pod in json.loads(answer.out)["as"][stock]["pods"]}
    for pod, guess, real in turns:
        predicted = found[f"{NS}/{real.name}"]
        if real.node and predicted["node"]:
            if predicted["node"] != real.node:
                assert {predicted["node"], real.node} <= guess.best
                return
        elif real.node or predicted["node"]:
            assert not real.node, (real.name, predicted)
            assert any(rule in pod["spec"] for rule in _TOGETHER), (real.name, predicted)
        else:
            assert same_reason(predicted["why"], real) or any(r in pod["spec"] for r in _TOGETHER)


def check_sums(dump: Path) -> None:
    """Check that `top` shows the sums that a kubelet computes."""
    answer = ask("top", "nodes", "-o", "json", "-f", dump).check()
    assert answer.code == 0
    trees = yaml.load(dump.read_bytes(), yaml.CSafeLoader)["items"]
    sums, uncharged = sums_of(trees), uncharged_nodes(trees)
    for node in json.loads(answer.out)["nodes"]:
        for row in node["resources"]:
            units = 1000 if row["resource"] == "cpu" else 1
            charged = sum(amount_of(row[part]) for part in ("requests", "claims", "overhead")) * units
            summed = sums[node["name"]][row["resource"]]
            # docs/compat.md: kube-scheduler charges no claim that had its devices before the pod came.
            assert charged == summed or (charged > summed and node["name"] in uncharged), (node["name"], row)
            assert amount_of(row["allocatable"]) * units - charged == amount_of(row["free"]) * units


def uncharged_nodes(trees: list[Tree]) -> set[str]:
    """Return nodes with a pod that shares a claim and has no charge for it in its status."""
    found = set()
    for pod in (tree for tree in trees if tree["kind"] == "Pod" and tree["spec"].get("nodeName")):
        named = {entry.get("resourceClaimName") for entry in pod["spec"].get("resourceClaims", ())} - {None}
        charged = pod["status"].get("nodeAllocatableResourceClaimStatuses", ())
        if named - {each["resourceClaimName"] for each in charged}:
            found.add(pod["spec"]["nodeName"])
    return found


def check_explanations(dump: Path, turns: list[tuple[Tree, Prediction, Decision]], stock: str) -> None:
    """Check that unschedulable pods get the same message as from kube-scheduler."""
    last = max((number for number, (_, _, real) in enumerate(turns) if real.node), default=-1)
    for number, (_, _, real) in enumerate(turns):
        answer = ask("explain", f"{NS}/{real.name}", "-o", "json", "-f", dump).check()
        assert answer.code in (0, 1), answer.err
        output = json.loads(answer.out)
        if real.node:
            assert output["verdict"] == "placed"
        elif number > last and stock == "kube-1.36-default":
            # Without claims the decision is the same; with them our allocator may choose other devices.
            assert output["verdict"] == "pending"
            assert same_reason(output["summary"], real), (real.name, output["summary"], real.why)


async def check_questions(dump: Path, batch: Path) -> None:
    for words in COMMANDS.values():
        answer = ask(*words, "-f", dump).check()
        assert answer.code in (0, 1), answer.err
    trees = yaml.load(dump.read_bytes(), yaml.CSafeLoader)["items"]
    async with visiting(read_cluster_state(Source((str(dump),)))) as visitor:
        overview = await visitor.get("/api/overview")
        assert overview["counts"]["nodes"] == sum(tree["kind"] == "Node" for tree in trees)
        pods = [tree for tree in trees if tree["kind"] == "Pod"]
        assert overview["counts"]["pending"] == sum(not pod["spec"].get("nodeName") for pod in pods)
        for path in ("nodes", "devices", "pools", "claims", "pods", "audit", "namespaces"):
            assert await visitor.get(f"/api/{path}")
        for pod in pods:
            assert await visitor.get(f"/api/explain/pod/{NS}/{pod['metadata']['name']}")


def test_a_dump_can_be_restored(tmp_path: Path) -> None:
    """A dump of a real cluster made by kubectl is restored by `plimsoll up -f`."""

    async def run() -> None:
        async with asyncio.timeout(120), run_oracle(tmp_path / "plane", ON) as oracle:
            random_cluster = random_story(SEEDS[0])
            await oracle.furnish(random_cluster.cluster)
            placed = [
                found for found in [await oracle.decide(pod) for pod in random_cluster.first] if found.node
            ]
            assert placed
            (tmp_path / "dump.yaml").write_bytes(oracle.dump())

    asyncio.run(run())
    with short_directory() as directory:
        words: list[Any] = ["up", "--data", directory / "data", "-f", tmp_path / "dump.yaml", "--once"]
        words += ["--runtime", "none", "--no-driver", "--listen", "127.0.0.1:0", "--dashboard", "127.0.0.1:0"]
        command = [sys.executable, "-m", "plimsoll.cli.main", *map(str, words)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Traceback" not in done.stdout + done.stderr
