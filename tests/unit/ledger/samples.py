"""Hypothesis strategies for pods and their charges."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hypothesis import strategies as st

from plimsoll.api import codec
from plimsoll.api.core import Pod
from plimsoll.api.forms import ClaimCharge, ResourceCharge
from plimsoll.api.quantity import Quantity
from tests.build import container, pod, sidecar


def amounts(**texts: str) -> dict[str, Quantity]:
    """`amounts(cpu="1", hugepages_2Mi="4Mi")`."""
    return {name.replace("_", "-"): Quantity.parse(text) for name, text in texts.items()}


def texts(found: Mapping[str, Quantity]) -> dict[str, str]:
    """Return amounts in canonical text."""
    return {name: amount.canonical() for name, amount in found.items()}


def charge(claim: str, *containers: str, policy: str = "", **quantities: str) -> ClaimCharge:
    """Return the charge of a claim."""
    resources = {n: ResourceCharge(q, policy=policy) for n, q in amounts(**quantities).items()}
    return ClaimCharge(claim, containers, resources)


# -- strategies


_MILLI = st.integers(0, 4000).map(lambda n: f"{n}m")
_BYTES = st.sampled_from(("0", "1", "300k", "64Mi", "100Mi", "1Gi", "1500M"))
_PAGES = st.sampled_from(("0", "2Mi", "10Mi"))


def resource_lists() -> st.SearchStrategy[dict[str, str]]:
    return st.fixed_dictionaries({}, optional={"cpu": _MILLI, "memory": _BYTES, "hugepages-2Mi": _PAGES})


def container_trees(name: str, policies: st.SearchStrategy[str | None]) -> st.SearchStrategy[dict[str, Any]]:
    def build(requests: Any, limits: Any, policy: str | None) -> dict[str, Any]:
        made = container(name, limits=limits, **requests)
        return {**made, "restartPolicy": policy} if policy else made

    return st.builds(build, resource_lists(), resource_lists(), policies)


@st.composite
def pods(draw: st.DrawFn) -> Pod:
    """Pods of up to three regular and four init containers, with overhead and pod-level resources."""
    regular = [draw(container_trees(f"c{i}", st.none())) for i in range(draw(st.integers(1, 3)))]
    kinds = st.sampled_from((None, "Always"))
    init = [draw(container_trees(f"i{i}", kinds)) for i in range(draw(st.integers(0, 4)))]
    spec: dict[str, Any] = {"overhead": draw(resource_lists())}
    if draw(st.booleans()):
        spec["resources"] = {"requests": draw(resource_lists()), "limits": draw(resource_lists())}
    return pod("p", *regular, init=tuple(init), **spec)


_POLICIES = ("", "AddPerClaim", "AddPerReference", "Max", "ConsumeFrom")


@st.composite
def charged_pods(
    draw: st.DrawFn, policies: tuple[str, ...] = _POLICIES
) -> tuple[Pod, tuple[ClaimCharge, ...]]:
    """Pods with claims that any of their containers refer to."""
    made = draw(pods())
    names = [c.name for c in (*made.spec.init_containers, *made.spec.containers)]
    quantities = resource_lists().map(lambda found: amounts(**found))
    charges = []
    for number in range(draw(st.integers(0, 3))):
        policy = draw(st.sampled_from(policies))
        parts = [draw(quantities) for _ in range(3)]
        resources = {
            name: ResourceCharge(parts[0].get(name), parts[1].get(name), parts[2].get(name), policy)
            for name in dict.fromkeys(n for part in parts for n in part)
        }
        containers = tuple(draw(st.lists(st.sampled_from(names), unique=True)))
        charges.append(ClaimCharge(f"claim-{number}", containers, resources))
    return made, tuple(charges)


POLICIES = ("", "AddPerClaim", "AddPerReference", "Max", "ConsumeFrom")


CLAIMS = tuple(f"claim-{i}" for i in range(5))


CPU = st.sampled_from(("0", "1", "2", "2", "3", "4", "500m", "1500m", "1u"))


MEMORY = st.integers(0, 6).map(lambda n: f"{n}Gi")


REQUESTS = st.fixed_dictionaries({}, optional={"cpu": CPU, "memory": MEMORY})


@st.composite
def rules(draw: st.DrawFn) -> dict[str, Any]:
    """Mapping of a device: each resource under its own policy."""
    amounts = {"cpu": draw(CPU), "memory": draw(MEMORY)}
    return {
        name: {"allocationMultiplier": amount, "accountingPolicy": draw(st.sampled_from(POLICIES))}
        for name, amount in amounts.items()
        if draw(st.booleans())
    }


@st.composite
def bodies(draw: st.DrawFn) -> dict[str, Any]:
    """Specs of pods."""
    one = st.sampled_from(CLAIMS).map(lambda name: [name])
    claims: st.SearchStrategy[list[str]] = st.one_of(
        st.just([]), st.just([]), one, st.lists(st.sampled_from(CLAIMS), max_size=2, unique=True)
    )
    make = st.sampled_from((container, sidecar))
    body: dict[str, Any] = {
        "containers": [
            container(f"c{i}", *draw(claims), **draw(REQUESTS)) for i in range(draw(st.integers(1, 2)))
        ],
        "init": [
            draw(make)(f"i{i}", *draw(claims), **draw(REQUESTS)) for i in range(draw(st.integers(0, 2)))
        ],
        "claims": draw(claims),
        "overhead": draw(REQUESTS),
    }
    if draw(st.integers(0, 4)) == 0:
        body["resources"] = {"requests": draw(REQUESTS)}
    return body


def make_pod(name: str, body: dict[str, Any]) -> Pod:
    rest = {key: value for key, value in body.items() if key != "containers"}
    return pod(name, *body["containers"], **rest)


def on(made: Pod, name: str = "node-1") -> Pod:
    tree: Any = codec.to_tree(made)
    tree["spec"]["nodeName"] = name
    return codec.convert(tree, Pod)
