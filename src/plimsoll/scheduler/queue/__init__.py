"""Scheduling queue: order of pending pods, and waking of unschedulable ones. START at `queue.py`.

An object change becomes a `ClusterEvent` (`scheduler/events.py`); the rules' queueing hints decide whom it
helps (`scheduler/queueing_hints.py`); `unschedulable_pods` finds those pods without asking all.
"""

from plimsoll.scheduler.queue.backoff import QueueSettings
from plimsoll.scheduler.queue.entry import QueuedPodInfo, QueueState
from plimsoll.scheduler.queue.queue import SchedulingQueue

__all__ = ["QueueSettings", "QueueState", "QueuedPodInfo", "SchedulingQueue"]
