"""The command line: argument parsing only; the work is done in `tools`."""
