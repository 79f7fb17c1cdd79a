"""Interpreter back end: the checked tree as closures, with exact errors and run-time costs."""
