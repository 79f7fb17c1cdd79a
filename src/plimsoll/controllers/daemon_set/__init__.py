"""DaemonSet controller: one pod on every node that matches."""
