"""The rules that say where a pod may go, a small module each; `filter.py` is what they have in common."""
