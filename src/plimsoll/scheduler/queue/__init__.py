"""Who is next, who waits for what, and which event wakes whom. START at `pods.py`.

Objects that change become a `Happening` (`happenings`); `wakeups` says which rules it can help; `waiting`
finds the pods to ask without asking all of them.
"""

from plimsoll.scheduler.queue.backoff import QueueSettings
from plimsoll.scheduler.queue.queue import QueuedPodInfo, QueueState, SchedulingQueue

__all__ = ["QueueSettings", "QueueState", "QueuedPodInfo", "SchedulingQueue"]
