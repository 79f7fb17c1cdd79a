"""`plimsoll driver cpu`: arguments, subcommands, and errors."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any

import pytest
import yaml

from plimsoll.cli.driver_cpu import cpu_commands, parse_running
from plimsoll.cli.main import main
from plimsoll.drivers.cpu.config_file import FLAGS
from plimsoll.drivers.cpu.process.plan import read_rows
from plimsoll.drivers.cpu.process.status_client import explain_claims, select_claims, show_status
from tests.unit.drivers.cpu.machines import make_machine, write_sysfs

#: 2 sockets of 4 cores of 2 threads; core ids repeat in every socket.
ROWS = [
    {"cpu": cpu, "core": cpu % 8, "socket": cpu % 8 // 4, "numa": cpu % 8 // 4, "uncore": cpu % 8 // 4}
    for cpu in range(16)
]
REPORT = {
    "layoutVersion": "v1",
    "cpuDetails": {
        "cpus": [
            {
                "cpuID": row["cpu"],
                "coreID": row["core"] % 4,
                "socketID": row["socket"],
                "clusterID": -1,
                "numaNodeID": row["numa"],
                "uncoreCacheID": row["uncore"],
            }
            for row in ROWS
        ]
    },
}


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as ended:
        main(["driver", "cpu", *words])
    output = capsys.readouterr()
    return int(str(ended.value.code or 0)), output.out, output.err


def test_every_setting_has_a_flag() -> None:
    options = {name for parameter in cpu_commands.params for name in parameter.opts}
    assert {f"--{flag}" for flag in FLAGS} <= options


def test_flags_in_the_style_of_go() -> None:
    given = parse_running(("-v=4", "-group-by=socket", "--expose-pcie-roots=false", "--reserved-cpus", "0-1"))
    assert given["level"] == 4
    assert (given["group_by"], given["reserved_cpus"]) == ("socket", "0-1")
    assert given["expose_pcie_roots"] == "false"
    assert parse_running(("--memory-nodes", "--v", "2"))["memory_nodes"] == "true"
    # Of a driver's command line what is understood counts.
    assert parse_running(("--unheard-of=1", "--group-by", "socket"))["group_by"] == "socket"
    assert parse_running(("--v=many", "--group-by=socket"))["group_by"] == "socket"


def test_flags_and_subcommands_do_not_mix(capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = run(capsys, "--group-by=socket", "introspect", "metrics")
    assert code == 2
    assert "root flags cannot be combined with subcommands" in err


@pytest.mark.parametrize(
    ("words", "output"),
    [
        (["--group-by", "rack"], 'invalid groupBy "rack": must be "numanode", "socket"'),
        (["--kubelet-root-dir", "var"], 'invalid kubeletRootDir "var": must be an absolute path'),
        (["--reserved-cpus", "x"], "failed to parse reserved CPUs"),
        (["--bind-address", "nowhere"], "--bind-address: 'nowhere' is not an address"),
        (["--config", "/nowhere/c.yaml"], "/nowhere/c.yaml"),
        (["--memory-nodes=perhaps"], "--memory-nodes: must be true or false"),
        (["status", "--address", "x"], "'x' is not an address"),
        (["explain"], "specify a claim UID or --all"),
        (["gatherinfo", "--stdout", "--output-dir", "."], "cannot be used together"),
        (["plan", "--count", "0"], "0 is not in the range"),
        (["plan", "--count", "1", "--taken", "x"], "--taken: "),
        (["plan", "--count", "1", "--topology", "/nowhere"], "/nowhere"),
        (["plan", "--count", "1", "--sysfs-root", "/nowhere"], "/nowhere"),
    ],
)
def test_errors_are_one_line(capsys: pytest.CaptureFixture[str], words: list[str], output: str) -> None:
    code, _, err = run(capsys, *words)
    assert code == 2
    assert output in err
    assert "Traceback" not in err


def test_no_driver_is_running(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    assert run(capsys, "status", "-q", "--address", f"127.0.0.1:{port}") == (1, "", "")
    for words in (["status"], ["explain", "--all"]):
        code, out, err = run(capsys, *words, "--address", f"127.0.0.1:{port}")
        assert (code, out) == (2, "")
        assert f"no driver responds at http://127.0.0.1:{port}/" in err


def test_metrics_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "introspect", "metrics")
    names = [each["name"] for each in json.loads(out)]
    assert code == 0
    assert names[:4] == [
        "dra_cpu_allocated_cpus",
        "dra_cpu_available_cpus",
        "dra_cpu_reserved_cpus",
        "dra_cpu_resource_claims_active",
    ]


@pytest.mark.parametrize("tree", [ROWS, {"cpus": ROWS}, REPORT], ids=["rows", "cpus", "report"])
def test_plans_for_machine_files(capsys: pytest.CaptureFixture[str], tmp_path: Path, tree: Any) -> None:
    file = tmp_path / "machine.yaml"
    file.write_text(yaml.safe_dump(tree))
    code, out, _ = run(capsys, "plan", "--count", "4", "--count", "2", "--topology", str(file))
    assert code == 0
    assert [line for line in out.splitlines() if not line.startswith(" ")] == ["4: 0-1,8-9", "2: 2,10"]
    code, out, _ = run(
        capsys, "plan", "--count", "4", "--algorithm", "distributed", "--topology", str(file), "-o", "json"
    )
    (answer,) = json.loads(out)
    assert (answer["count"], answer["cpus"]) == (4, "0-1,8-9")
    assert answer["explain"]
    words = ["--within", "4-7,12-15", "--taken", "4-5"]
    code, out, _ = run(capsys, "plan", "--count", "3", "--count", "9", *words, "--topology", str(file))
    assert code == 1
    output = [line for line in out.splitlines() if not line.startswith(" ")]
    assert output[0] == "3: 6,12,14"
    assert output[1].startswith("9: not enough cpus available to satisfy request")


@pytest.mark.parametrize(
    "tree",
    [
        {},
        [],
        "text",
        [1],
        [{"cpu": 0}],
        [{**ROWS[0], "cpu": -1}],
        [{**ROWS[0], "cpu": 10**9}],
        [{**ROWS[0], "numa": "0"}],
        [{**ROWS[0], "numa": True}],
        [ROWS[0], ROWS[0]],
        {"cpuDetails": {"cpus": [{"cpuID": 0}]}},
        {"cpuDetails": 3},
    ],
)
def test_invalid_machine_files(capsys: pytest.CaptureFixture[str], tmp_path: Path, tree: Any) -> None:
    file = tmp_path / "machine.yaml"
    file.write_text(yaml.safe_dump(tree))
    code, out, err = run(capsys, "plan", "--count", "1", "--topology", str(file))
    assert (code, out) == (2, "")
    assert str(file) in err
    assert "Traceback" not in err


def test_cores_of_a_report_are_unique_in_the_machine() -> None:
    assert [row["core"] for row in read_rows(REPORT, "report")] == [cpu % 8 for cpu in range(16)]


def test_a_plan_for_a_copied_sysfs(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    write_sysfs(make_machine(sockets=2, cores=4, threads=2), tmp_path)
    code, out, _ = run(capsys, "plan", "--count", "8", "--sysfs-root", str(tmp_path))
    assert code == 0
    assert out.splitlines()[0] == "8: 0-3,8-11"


def test_information_is_gathered_without_a_driver(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_sysfs(make_machine(cores=4), tmp_path)
    (tmp_path / "proc").mkdir()
    monkeypatch.setenv("HOST_ROOT", str(tmp_path))
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    code, out, _ = run(capsys, "gatherinfo", "--stdout", "--address", f"127.0.0.1:{port}")
    assert code == 0
    report = yaml.safe_load(out)
    assert report["layoutVersion"] == "v1"
    assert report["cpuDetails"]["topology"]["numCPUs"] == 4
    assert any("no CPU driver runs" in note for note in report["plimsoll"]["driver"]["notes"])
    code, out, _ = run(
        capsys, "gatherinfo", "--output-dir", str(tmp_path / "out"), "--address", f"127.0.0.1:{port}"
    )
    (file,) = (tmp_path / "out").iterdir()
    assert code == 0
    assert str(file) in out


def test_introspect_reads_the_settings_of_a_running_driver(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_sysfs(make_machine(cores=4), tmp_path)
    process = tmp_path / "proc" / "42"
    (process / "root" / "etc").mkdir(parents=True)
    (process / "root" / "etc" / "c.yaml").write_text("groupBy: socket\nreservedCPUs: '0'\n")
    words = ["/usr/bin/python", "/usr/bin/plimsoll", "driver", "cpu", "--config=/etc/c.yaml"]
    words += ["--hostname-override", "n7", "--bind-address=127.0.0.1:1", "--cert-dir=/tmp/tls"]
    (process / "cmdline").write_bytes("\0".join(words).encode() + b"\0")
    monkeypatch.setenv("HOST_ROOT", str(tmp_path))
    code, out, _ = run(capsys, "gatherinfo", "--stdout")
    assert code == 0
    report = yaml.safe_load(out)
    config = report["driverConfig"]
    assert (config["groupBy"], config["reservedCPUs"], config["hostnameOverride"]) == ("socket", "0", "n7")
    assert any("https://127.0.0.1:1/" in note for note in report["plimsoll"]["driver"]["notes"])
    # A file that is gone leaves the flags.
    (process / "root" / "etc" / "c.yaml").unlink()
    code, out, _ = run(capsys, "gatherinfo", "--stdout")
    report = yaml.safe_load(out)
    assert (report["driverConfig"]["groupBy"], report["driverConfig"]["hostnameOverride"]) == (
        "numanode",
        "n7",
    )
    assert any("c.yaml" in note for note in report["plimsoll"]["driver"]["notes"])


def test_texts_of_driver_explanations() -> None:
    tree = {
        "node": "n1",
        "shared": "1-3",
        "devices": {"cpudevnuma000": {"cpus": "0-3", "held": "0"}},
        "claims": [
            {
                "uid": "u1",
                "namespace": "ns",
                "name": "c",
                "cpus": "0",
                "disputed": "why",
                "explain": ["a", "b"],
            }
        ],
        "faults": ["x"],
        "findings": [{"severity": "warning", "what": "w", "fix": ""}],
    }
    assert list(show_status(tree)) == [
        "node      n1",
        "shared    1-3",
        "device    cpudevnuma000: CPUs 0-3, allocated 0",
        "claim     ns/c: CPUs 0; disputed: why",
        "faults    x",
        "findings  warning: w",
    ]
    assert list(explain_claims(select_claims(tree, "u1"))) == ["ns/c (u1): CPUs 0", "  a", "  b"]
    assert list(show_status({"claims": 3, "devices": [], "faults": 7})) == []
