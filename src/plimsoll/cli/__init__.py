"""The command line: argument parsing only; the answers come from `tools`."""
