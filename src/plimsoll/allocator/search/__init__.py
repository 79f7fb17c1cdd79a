"""Device search: the backtracking search, its state, and bounds that prune it."""
