"""Scheduling queue: order of pending pods, and waking of unschedulable ones. START at `queue.py`.

An object change becomes a `ClusterEvent` (`scheduler/events.py`); the queueing hints of the rules decide
which pods it helps (`scheduler/queueing_hints.py`); `unschedulable_pods` finds these pods by indexes.
"""

from plimsoll.scheduler.queue.backoff import QueueSettings
from plimsoll.scheduler.queue.entry import QueuedPodInfo, QueueState
from plimsoll.scheduler.queue.queue import SchedulingQueue

__all__ = ["QueueSettings", "QueueState", "QueuedPodInfo", "SchedulingQueue"]
