"""Interpreter back end: converts the checked tree to closures with exact errors and run-time costs."""
