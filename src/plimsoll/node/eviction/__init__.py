"""Node-pressure eviction: `thresholds` define when, `usage` measures, `manager` decides and evicts."""
