"""Prometheus metrics of node agents, under the kubelet's names where it has them.

Pods, rejections, heartbeats, and the ledger's allocatable, requested and headroom by node and resource.
Components with their own metrics register in `registry`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Iterator

from plimsoll.common.counters import MetricCounter
from plimsoll.common.metrics import CounterFamily, GaugeFamily, MetricFamily, MetricRegistry, ProcessMetrics
from plimsoll.ledger.node_ledger import NodeLedger
from plimsoll.ledger.units import CPU, PODS
from plimsoll.node.process.agents import AgentLike

#: Number of nodes written before yielding to other tasks.
_PIECE = 100


class NodeMetrics:
    """Metrics of all agents of a process; `expose` writes them."""

    def __init__(self, agents: Callable[[], Iterable[AgentLike]]) -> None:
        self._agents = agents
        self.registry = MetricRegistry()
        self.registry.register(self)
        self.registry.register(ProcessMetrics())

    def collect(self) -> Iterator[MetricFamily]:
        agents = list(self._agents())
        yield self._rejections(agents)
        names = GaugeFamily("kubelet_node_name", "The node's name. The count is always 1.", labels=["node"])
        for agent in agents:
            names.add([agent.name], 1)
        yield names
        desired = sum(len(agent.pods()) for agent in agents)
        yield GaugeFamily("kubelet_desired_pods", "The number of pods known to the nodes.", value=desired)
        admitted = sum(len(agent.admission_handler) for agent in agents)
        yield GaugeFamily("kubelet_running_pods", "Number of admitted pods.", value=admitted)
        beats = CounterFamily(
            "plimsoll_node_heartbeats_total",
            "Number of Lease renewals, status writes, registrations, and failures of these.",
            labels=["what"],
        )
        sums = {"lease": 0, "status": 0, "registration": 0, "failure": 0}
        for agent in agents:
            status_reporter = agent.status_reporter
            sums["lease"] += status_reporter.renewals
            sums["status"] += status_reporter.reports
            sums["registration"] += status_reporter.registrations
            sums["failure"] += status_reporter.failures
        for what, count in sums.items():
            beats.add([what], count)
        yield beats
        counts = [agent.cgroup_counts() for agent in agents]
        yield CounterFamily(
            "plimsoll_node_cgroup_losses_total",
            "Number of times that cgroups of the agent were found removed.",
            value=sum(losses for losses, _ in counts),
        )
        yield CounterFamily(
            "plimsoll_node_cgroup_restores_total",
            "Number of times that removed cgroups were created again.",
            value=sum(restores for _, restores in counts),
        )

    def _rejections(self, agents: Iterable[AgentLike]) -> MetricFamily:
        counter = MetricCounter(
            "kubelet_admission_rejections_total",
            "Cumulative number pod admission rejections by the Kubelet.",
            ("reason",),
        )
        for agent in agents:
            for reason, count in agent.admission_handler.rejections.items():
                counter.add(reason, count=count)
        return counter.family()

    async def expose(self) -> AsyncIterator[bytes]:
        """Yield the metrics page in pieces."""
        yield self.registry.render()
        agents = list(self._agents())
        for name, help in _LEDGER:
            metric = f"plimsoll_ledger_{name}"
            yield f"# HELP {metric} {help}\n# TYPE {metric} gauge\n".encode()
            for start in range(0, len(agents), _PIECE):
                await asyncio.sleep(0)
                lines: list[str] = []
                for agent in agents[start : start + _PIECE]:
                    lines += _lines(metric, name, agent.admission_handler.ledger)
                yield "".join(lines).encode()


_LEDGER = (
    ("allocatable", "Allocatable amount of a resource on a node."),
    ("requested", "Amount charged by pods and claims."),
    ("headroom", "Amount that is still free."),
)


def _lines(metric: str, name: str, ledger: NodeLedger) -> Iterator[str]:
    amounts = {
        "allocatable": lambda: ledger.allocatable,
        "requested": lambda: {**ledger.requested, PODS: len(ledger)},
        "headroom": ledger.headroom,
    }[name]()
    for resource, amount in amounts.items():
        value = amount / 1000 if resource == CPU else amount
        yield f'{metric}{{node="{ledger.name}",resource="{resource}"}} {value}\n'
