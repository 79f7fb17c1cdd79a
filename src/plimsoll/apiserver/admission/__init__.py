"""Admission plugins: namespace lifecycle, priority, default tolerations, quota, node restriction."""
