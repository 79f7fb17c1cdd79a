"""Claims in use on this node: who uses them, what their drivers have prepared, and the record of it all.

Start at `book.py`.
"""
