"""Rules of SARIF 2.1.0."""

from __future__ import annotations

from typing import Any


def check_sarif(tree: dict[str, Any]) -> None:
    """Check the rules of SARIF 2.1.0."""
    assert tree["version"] == "2.1.0"
    assert tree["$schema"].endswith("sarif-2.1.0.json")
    (run,) = tree["runs"]
    driver = run["tool"]["driver"]
    assert driver["name"]
    ids = [rule["id"] for rule in driver["rules"]]
    assert len(set(ids)) == len(ids)
    for rule in driver["rules"]:
        assert rule["name"].isalnum()
        for text in (rule["shortDescription"], rule["fullDescription"], rule["help"]):
            assert text["text"].strip()
        assert rule["defaultConfiguration"]["level"] in ("none", "note", "warning", "error")
    for result in run["results"]:
        assert ids[result["ruleIndex"]] == result["ruleId"]
        assert result["level"] in ("none", "note", "warning", "error")
        assert result["message"]["text"]
        assert result.get("baselineState", "new") in ("new", "unchanged", "updated", "absent")
        for location in result["locations"]:
            for logical in location["logicalLocations"]:
                assert set(logical) == {"name", "fullyQualifiedName", "kind"}
            physical = location.get("physicalLocation")
            if physical is not None:
                assert " " not in physical["artifactLocation"]["uri"]
                assert physical["region"]["startLine"] >= 1
        assert all(isinstance(mark, str) for mark in result["partialFingerprints"].values())
    for invocation in run["invocations"]:
        assert invocation["executionSuccessful"] is True
        for note in invocation["toolConfigurationNotifications"]:
            assert note["message"]["text"]
            assert note["level"] in ("none", "note", "warning", "error")
