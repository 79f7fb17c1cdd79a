"""Output and exit codes of check, select, convert, gates and allocate."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import pytest

from plimsoll.cli.main import main

SLICE = """
apiVersion: resource.k8s.io/v1
kind: ResourceSlice
metadata: {name: s}
spec:
  driver: gpu.example.com
  nodeName: node-1
  pool: {name: node-1, generation: 1, resourceSliceCount: 1}
  devices:
  - name: gpu-0
    attributes: {model: {string: a100}}
    nodeAllocatableResources: {cpu: {mapping: {deviceMultiplier: "2"}, overhead: {perPod: 10m}}}
  - name: gpu-1
    attributes: {model: {string: h100}}
"""


class Result:
    def __init__(self, code: int, out: str, err: str) -> None:
        self.code, self.out, self.err = code, out, err


Run: TypeAlias = Callable[..., Result]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    def call(*arguments: str) -> Result:
        with pytest.raises(SystemExit) as exit:
            main([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        code = exit.value.code
        assert isinstance(code, int)
        return Result(code, captured.out, captured.err)

    return call


OTHER = "{apiVersion: example.com/v1, kind: Service, metadata: {name: other}}\n"


@pytest.fixture
def slices(tmp_path: Path) -> str:
    path = tmp_path / "slices.yaml"
    path.write_text(SLICE)
    return str(path)


def test_check_reports_problems(run: Run, slices: str, tmp_path: Path) -> None:
    fine = run("check", "-f", slices)
    assert (fine.code, fine.out) == (0, "1 checked, 1 valid, 0 invalid\n")
    (tmp_path / "slices.yaml").write_text(SLICE.replace("gpu-1", "GPU_1") + "---\n" + OTHER)
    wrong = run("check", "-f", slices)
    assert wrong.code == 1
    assert f"ResourceSlice s ({slices}, document 1, line 2):" in wrong.out
    assert "  spec.devices[1].name: " in wrong.out
    assert wrong.out.endswith("1 checked, 0 valid, 1 invalid; 1 of kinds that are not validated\n")
    report = json.loads(run("check", "-f", slices, "-o", "json").out)
    assert [entry["checked"] for entry in report] == [True, False]
    assert report[0]["problems"][0].startswith("spec.devices[1].name: ")


def test_check_honours_gates(run: Run, slices: str) -> None:
    both = SLICE.replace(
        "    attributes: {model: {string: h100}}", "    taints: [{key: broken, effect: Sometimes}]"
    )
    Path(slices).write_text(both)
    assert run("check", "-f", slices).code == 1
    assert run("check", "-f", slices, "--feature-gates", "DRADeviceTaints=false").code == 0


def test_check_reports_undecodable_objects(run: Run, slices: str) -> None:
    Path(slices).write_text(SLICE.replace("generation: 1", "generation: one"))
    result = run("check", "-f", slices)
    assert result.code == 1
    assert "  spec.pool.generation: must be a whole number, not a string" in result.out


def test_select_lists_the_devices_that_match(run: Run, slices: str) -> None:
    expression = 'device.attributes["gpu.example.com"].model == "a100"'
    result = run("select", expression, "-f", slices)
    assert result.code == 0
    assert result.out.splitlines()[0] == "gpu.example.com/node-1/gpu-0"
    assert "gpu-1" not in result.out
    every = run("select", expression, "-f", slices, "-o", "wide").out.splitlines()
    assert [line.split()[0] for line in every[1:]] == [
        "gpu.example.com/node-1/gpu-0", "gpu.example.com/node-1/gpu-1",
    ]  # fmt: skip
    answers = json.loads(run("select", expression, "-f", slices, "-o", "json").out)
    assert [answer["matches"] for answer in answers] == [True, False]
    assert run("select", "false", "-f", slices).code == 1
    missing = run("select", 'device.attributes["gpu.example.com"].nope == 1', "-f", slices)
    assert missing.code == 1
    assert missing.out.count("no such key: nope") == 1


def test_select_reports_an_input_without_devices(run: Run) -> None:
    result = run("select", "true", "-f", "/dev/null")
    assert (result.code, result.out) == (1, "")
    assert result.err == "no devices found in the files\n"


def test_check_takes_the_default_namespace(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "claim.yaml"
    path.write_text(
        "apiVersion: resource.k8s.io/v1\nkind: ResourceClaim\nmetadata: {name: c}\nspec: {devices: {}}"
    )
    assert run("check", "-f", path).code == 0


def test_convert_rewrites_and_reports_losses(run: Run, slices: str) -> None:
    newer = run("convert", "-f", slices, "--form", "1.37")
    assert (newer.code, newer.err) == (0, "")
    older = run("convert", "-f", slices, "--form", "1.36")
    assert older.code == 1
    assert older.err == "lost: gpu-0: cpu: overhead of 10m per pod\n"
    devices = json.loads(older.out)["spec"]["devices"]
    assert devices[0]["nodeAllocatableResourceMappings"] == {"cpu": {"allocationMultiplier": "2"}}
    assert "nodeAllocatableResources" not in devices[0]
    assert devices[1] == {"name": "gpu-1", "attributes": {"model": {"string": "h100"}}}


def test_convert_refuses_a_device_that_contradicts_itself(run: Run, slices: str) -> None:
    both = 'deviceMultiplier: "2", capacityKey: cores, capacityMultiplier: "1"'
    Path(slices).write_text(SLICE.replace('deviceMultiplier: "2"', both))
    result = run("convert", "-f", slices, "--form", "1.37")
    assert (result.code, result.out) == (2, "")
    assert "spec.devices[0].nodeAllocatableResources[cpu].mapping" in result.err


def test_gates_are_listed(run: Run) -> None:
    result = run("gates", "--feature-gates", "DRANativeResources=false")
    line = next(line for line in result.out.splitlines() if line.startswith("DRANodeAllocatableResources"))
    assert line.split()[1:3] == ["off", "off"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("check", "-f", "/does/not/exist"), "plimsoll: /does/not/exist: no such file or directory\n"),
        (("select", "device.driver ==", "-f", "/dev/null"), "plimsoll: "),
        (("gates", "--feature-gates", "Nope=true"), "plimsoll: unknown feature gate 'Nope'"),
        (("gates", "--feature-gates", "Nope"), "plimsoll: 'Nope' is not a feature gate setting"),
    ],
)
def test_errors_are_one_line(run: Run, arguments: tuple[str, ...], message: str) -> None:
    result = run(*arguments)
    assert result.code == 2
    assert result.err.startswith(message)
    assert result.err.count("\n") == 1
    assert "Traceback" not in result.err


def test_broken_files_are_named(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "broken.yaml"
    path.write_text("kind: Pod\n---\n{")
    result = run("check", "-f", str(path))
    assert result.code == 2
    assert result.err.startswith(f"plimsoll: {path}, document 2: line ")


def test_help_and_version(run: Run) -> None:
    assert "One ledger for a Kubernetes node" in run("--help").out
    assert run("--version").out.startswith("plimsoll, version ")
    assert run("nonsense").code == 2


CLASS = """
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: gpu}
spec: {selectors: [{cel: {expression: 'device.driver == "gpu.example.com"'}}]}
"""
CLAIMS = """
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: %s, namespace: default}
spec: {devices: {requests: [{name: r, exactly: {deviceClassName: gpu, count: %d}}]}}
"""


ODD = "apiVersion: resource.k8s.io/v1\nkind: ResourceClaim\nmetadata: {name: odd, namespace: default}\n"


@pytest.fixture
def cluster(tmp_path: Path, slices: str) -> str:
    (tmp_path / "class.yaml").write_text(CLASS)
    (tmp_path / "claims.yaml").write_text("---".join(CLAIMS % row for row in (("one", 1), ("two", 2))))
    return str(tmp_path)


def test_allocate_reports_allocations_and_refusals(run: Run, cluster: str) -> None:
    result = run("allocate", "-f", cluster)
    assert result.code == 1
    assert "default/one: allocated on node node-1" in result.out
    assert "gpu.example.com/node-1/gpu-0   exclusive" in result.out
    assert "default/two: cannot be allocated on any of 1 nodes" in result.out
    assert "1 x already allocated: gpu.example.com/node-1/gpu-0" in result.out


def test_allocate_can_be_limited_to_a_claim_and_a_node(run: Run, cluster: str) -> None:
    result = run("allocate", "-f", cluster, "--claim", "two", "--node", "node-1", "-o", "json")
    assert result.code == 0
    (answer,) = json.loads(result.out)
    assert answer["node"] == "node-1"
    devices = [each["device"] for each in answer["allocations"][0]["devices"]["results"]]
    assert devices == ["gpu-0", "gpu-1"]


def test_allocate_together_allocates_claims_at_once(run: Run, cluster: str) -> None:
    result = run("allocate", "-f", cluster, "--together", "-o", "json")
    assert result.code == 1
    (answer,) = json.loads(result.out)
    assert answer["claims"] == ["default/one", "default/two"]
    assert "each request alone could be served; together they cannot" in answer["refusals"][0]["reasons"]


def test_allocate_reports_an_aborted_search(run: Run, cluster: str) -> None:
    result = run("allocate", "-f", cluster, "--claim", "two", "--steps", "1")
    assert (result.code, "gave up after 2 steps: the step budget is spent" in result.out) == (1, True)
    late = run("allocate", "-f", cluster, "--claim", "one", "--timeout", "0")
    assert (late.code, "the deadline passed" in late.out) == (1, True)


def test_allocate_names_what_is_missing(run: Run, cluster: str, slices: str) -> None:
    for arguments, missing in (
        (("--claim", "three"), "ResourceClaim 'three'"),
        (("--node", "mars"), "node 'mars'"),
    ):
        result = run("allocate", "-f", cluster, *arguments)
        assert result.code == 2
        assert result.err.startswith(f"plimsoll: {missing} not found")
    nothing = run("allocate", "-f", slices)
    assert (nothing.code, "no pending ResourceClaim found" in nothing.err) == (1, True)
    assert run("allocate", "-f", cluster, "--least-waste", "--claim", "default/one").code == 0


@pytest.mark.parametrize(
    "spec",
    [
        "{devices: {requests: [null]}}",
        "{devices: {requests: [{name: r, exactly: null}]}}",
        "{devices: {requests: [{name: r, exactly: {deviceClassName: gpu, count: -1}}]}}",
        "{devices: {requests: [{name: r, exactly: {deviceClassName: gpu, allocationMode: Some}}]}}",
        "{devices: {requests: [{name: r, firstAvailable: [null]}]}}",
        "{devices: {requests: 7}}",
    ],
)
def test_allocate_reports_invalid_claims(run: Run, cluster: str, tmp_path: Path, spec: str) -> None:
    """Every problem of a claim is reported by field, and nothing is allocated."""
    (tmp_path / "odd.yaml").write_text(f"{ODD}spec: {spec}\n")
    result = run("allocate", "-f", cluster, "--claim", "odd")
    if result.code == 2:  # it cannot even be read
        assert result.err.startswith("plimsoll: ")
    else:
        assert result.code == 1
        assert "default/odd: invalid claim, the API server would reject it\n  spec.devices" in result.out


@pytest.mark.parametrize("spec", ["null", "{devices: null}", "{devices: {requests: null}}"])
def test_a_claim_without_requests_is_allocated(run: Run, cluster: str, tmp_path: Path, spec: str) -> None:
    (tmp_path / "odd.yaml").write_text(f"{ODD}spec: {spec}\n")
    result = run("allocate", "-f", cluster, "--claim", "odd", "-o", "json")
    assert result.code == 0
    assert json.loads(result.out)[0]["allocations"] == [{"devices": {}}]
