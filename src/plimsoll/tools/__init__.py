"""The questions people ask, answered as values or lines of text; `cli` only parses their arguments."""
