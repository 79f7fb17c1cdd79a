"""Admission plugins: namespace lifecycle, priority, quota, node restriction."""
