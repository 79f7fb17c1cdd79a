"""Report of shadow mode: counts, reasons and the latest differences, as JSON and as text.

Its size is bounded. `--report FILE` keeps it as JSON in FILE and as text in FILE.txt; a process that starts
again continues it, and the time in which none ran is part of it.
"""

from __future__ import annotations

import json
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from plimsoll.api.timestamps import format_time, parse_time
from plimsoll.common.atomic_file import replace_file
from plimsoll.errors import ConfigError
from plimsoll.scheduler.process.shadow.comparison import ShadowComparison, ShadowOutcome

KIND, VERSION = "ShadowReport", 1
#: Number of differences, distinct reasons and interruptions that are kept.
MAX_DIFFERENCES, MAX_REASONS, MAX_GAPS = 1000, 200, 100
OTHER = "other reasons"
#: Differences in the text.
_SHOWN = 20
_MEANINGS: Mapping[ShadowOutcome, str] = {
    ShadowOutcome.SAME: "the same node",
    ShadowOutcome.TIE: "another node with the same score",
    ShadowOutcome.ELSEWHERE: "another node",
    ShadowOutcome.WAITS: "pending here, bound by the other scheduler",
    ShadowOutcome.SOONER: "scheduled here, pending there",
    ShadowOutcome.BOTH_PENDING: "pending in both",
}


class ShadowReport:
    """Results of all comparisons."""

    def __init__(self, names: Sequence[str] = ()) -> None:
        self.names = tuple(names)
        self.since = self.until = ""
        self.runs = 1
        #: Pods by outcome, and those of them whose state changed during the comparison.
        self.pods: Counter[str] = Counter()
        self.raced: Counter[str] = Counter()
        #: (outcome, plugin) -> number of pods, how many of them raced, and an example.
        self.reasons: dict[tuple[str, str], tuple[int, int, str]] = {}
        self.differences: deque[dict[str, Any]] = deque(maxlen=MAX_DIFFERENCES)
        self.dropped = 0  #: differences that are counted but no longer listed
        self.gaps: deque[tuple[str, str]] = deque(maxlen=MAX_GAPS)

    def start(self, now: float) -> None:
        """Begin to observe, or to observe again after an interruption."""
        if self.until:
            self.gaps.append((self.until, format_time(now)))
            self.runs += 1
        self.since = self.since or format_time(now)
        self.until = format_time(now)

    def observed_until(self, now: float) -> None:
        """Record that everything up to this time was observed."""
        self.until = format_time(now)

    def add(self, pod: str, found: ShadowComparison, raced: Sequence[str], now: float) -> None:
        """Count a comparison; `raced` has the reasons why its state is not certain."""
        outcome = found.outcome.value
        self.until = format_time(now)
        self.pods[outcome] += 1
        self.raced[outcome] += bool(raced)
        if not found.outcome.is_difference:
            return
        for plugin in found.plugins or ("",):
            key = (outcome, plugin)
            if key not in self.reasons and len(self.reasons) >= MAX_REASONS:
                key = (outcome, OTHER)
            count, of_them_raced, example = self.reasons.get(key, (0, 0, pod))
            self.reasons[key] = count + 1, of_them_raced + bool(raced), example
        self.dropped += len(self.differences) == MAX_DIFFERENCES
        self.differences.append(
            {
                "time": self.until,
                "pod": pod,
                "outcome": outcome,
                "node": found.theirs,
                "ours": found.ours,
                "why": list(found.why),
                "plugins": list(found.plugins),
                "scores": [
                    {"plugin": each.plugin, "ours": each.ours, "theirs": each.theirs} for each in found.scores
                ],
                "raced": list(raced),
            }
        )

    # -- JSON

    def to_tree(self) -> dict[str, Any]:
        """Return the report as JSON values."""
        return {
            "kind": KIND,
            "version": VERSION,
            "schedulerNames": list(self.names),
            "since": self.since,
            "until": self.until,
            "runs": self.runs,
            "unobserved": [{"from": begin, "to": end} for begin, end in self.gaps],
            "pods": {each.value: self.pods[each.value] for each in ShadowOutcome},
            "raced": {each.value: self.raced[each.value] for each in ShadowOutcome},
            "reasons": [
                {"outcome": outcome, "plugin": plugin, "pods": count, "raced": raced, "example": example}
                for (outcome, plugin), (count, raced, example) in self._ranked()
            ],
            "differences": list(self.differences),
            "differencesNotListed": self.dropped,
        }

    def _ranked(self) -> list[tuple[tuple[str, str], tuple[int, int, str]]]:
        """Return the reasons, those of most pods that did not race first."""
        return sorted(self.reasons.items(), key=lambda item: (item[1][1] - item[1][0], -item[1][0], item[0]))

    @staticmethod
    def of_tree(tree: Any) -> ShadowReport:
        """Read a report; raises ValueError, KeyError or TypeError if it is not one."""
        if tree["kind"] != KIND or tree["version"] != VERSION:
            raise ValueError(f"{tree['kind']} version {tree['version']}")
        report = ShadowReport([str(name) for name in tree["schedulerNames"]])
        report.since, report.until, report.runs = str(tree["since"]), str(tree["until"]), int(tree["runs"])
        report.gaps.extend((str(gap["from"]), str(gap["to"])) for gap in tree["unobserved"])
        report.pods.update({str(name): int(count) for name, count in tree["pods"].items()})
        report.raced.update({str(name): int(count) for name, count in tree["raced"].items()})
        for each in tree["reasons"][:MAX_REASONS]:
            key = str(each["outcome"]), str(each["plugin"])
            report.reasons[key] = int(each["pods"]), int(each["raced"]), str(each["example"])
        report.differences.extend(dict(each) for each in tree["differences"])
        report.dropped = int(tree["differencesNotListed"])
        return report

    # -- text

    def format_text(self) -> str:
        """Format the report for people."""
        total = sum(self.pods.values())
        lines = [
            f"shadow of {', '.join(self.names)}: {total} pods from {self.since} to {self.until}",
            *self._describe_gaps(),
            "",
        ]
        rows = [("outcome", "pods", "share", "raced", "")]
        for each in ShadowOutcome:
            count = self.pods[each.value]
            share = f"{count * 1000 // total / 10:.1f} %" if total else "-"
            rows.append((each.value, str(count), share, str(self.raced[each.value]), _MEANINGS[each]))
        lines += _align(rows)
        if self.reasons:
            lines += ["", "reasons for differences"]
            named = [
                (outcome, plugin or "-", str(count), str(raced), pod)
                for (outcome, plugin), (count, raced, pod) in self._ranked()
            ]
            lines += _align([("outcome", "plugin", "pods", "raced", "such as"), *named[:_SHOWN]])
        if self.differences:
            lines += ["", f"latest differences ({min(_SHOWN, len(self.differences))} of {self._differing})"]
            for difference in list(self.differences)[-_SHOWN:]:
                lines += _describe(difference)
        return "\n".join(lines) + "\n"

    @property
    def _differing(self) -> int:
        return len(self.differences) + self.dropped

    def _describe_gaps(self) -> Iterable[str]:
        if self.gaps:
            seconds = sum(max(0.0, (parse_time(b) or 0.0) - (parse_time(a) or 0.0)) for a, b in self.gaps)
            yield f"not observed for {seconds:.0f} s: started {self.runs} times"


def _describe(each: Mapping[str, Any]) -> Iterable[str]:
    where = f"{each['node'] or 'pending'} -> {each['ours'] or 'pending'}"
    raced = f" (raced: {', '.join(each['raced'])})" if each["raced"] else ""
    yield f"{each['time']} {each['pod']}: {each['outcome']}, {where}{raced}"
    for text in each["why"]:
        yield f"  {text}"
    for score in each["scores"]:
        yield f"  {score['plugin']}: {score['ours']} instead of {score['theirs']}"


def _align(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    ]


class ReportFile:
    """File of a report: JSON, and text next to it."""

    def __init__(self, path: Path | None, warn: Callable[[str], None]) -> None:
        self._path = path
        self._warn = warn

    def load(self, names: Sequence[str]) -> ShadowReport:
        """Return the report of an earlier process, or a new one; raises ConfigError for other files."""
        if self._path is None or not self._path.exists():
            return ShadowReport(names)
        try:
            report = ShadowReport.of_tree(json.loads(self._path.read_bytes()))
        except OSError as error:
            raise ConfigError(f"--report: {self._path}: {error.strerror or error}") from None
        except (ValueError, KeyError, TypeError, AttributeError):
            raise ConfigError(f"--report: {self._path} is not a shadow report: use another file") from None
        report.names = tuple(names)
        return report

    def save(self, report: ShadowReport) -> None:
        """Write both files; a failure is a warning, and the next save tries again."""
        if self._path is None:
            return
        text = json.dumps(report.to_tree(), indent=1, ensure_ascii=False) + "\n"
        try:
            replace_file(self._path, text.encode(), mode=0o644)
            replace_file(
                self._path.with_name(f"{self._path.name}.txt"), report.format_text().encode(), mode=0o644
            )
        except OSError as error:
            self._warn(f"cannot write the report {self._path}: {error.strerror or error}")
