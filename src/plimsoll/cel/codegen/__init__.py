"""Code generator back end: Python functions for common selectors, with the interpreter as fallback."""
