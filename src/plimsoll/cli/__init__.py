"""Command line: argument parsing only; the commands are implemented in the other packages."""
