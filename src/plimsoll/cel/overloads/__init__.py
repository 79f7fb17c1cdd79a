"""Records of CEL functions: signatures, run-time costs, cost estimates and fragments of generated code."""
