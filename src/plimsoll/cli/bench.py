"""`plimsoll bench`: measure how fast this machine schedules."""

# ruff: noqa: PLC0415

from __future__ import annotations

import click

from plimsoll.cli.options import OutputFormat, Progress, output_options, write_report


@click.command(name="bench")
@click.option(
    "--nodes", type=click.IntRange(4, 100_000), default=1000, show_default=True, help="Number of nodes."
)
@click.option(
    "--pods", type=click.IntRange(1, 1_000_000), default=1000, show_default=True, help="Number of pods."
)
@click.option(
    "--scenario",
    "scenarios",
    multiple=True,
    type=click.Choice(["requests", "devices", "cpus"]),
    help="Workload to schedule. Repeatable. [default: all]",
)
@output_options
def run_bench(nodes: int, pods: int, scenarios: tuple[str, ...], form: OutputFormat) -> None:
    """Measure how long scheduling decisions take on a synthetic cluster in memory.

    No cluster is needed or changed. The figures depend on this machine and its load; the ratio to a naive
    pass over all nodes depends less on it.

    \b
    plimsoll bench
    plimsoll bench --nodes 5000 --pods 2000 --scenario devices
    plimsoll bench -o json
    """
    from plimsoll.tools.benchmarks import SCENARIOS, BenchmarkReport, measure

    wanted = list(dict.fromkeys(scenarios)) or list(SCENARIOS)
    results = []
    with Progress() as progress:
        for number, scenario in enumerate(wanted):
            progress.tick(f"measuring {scenario}", number, len(wanted))
            results.append(measure(scenario, nodes, pods))
    write_report(BenchmarkReport(tuple(results)), form)
