"""Device taint eviction controller: evicts pods that use tainted devices."""
