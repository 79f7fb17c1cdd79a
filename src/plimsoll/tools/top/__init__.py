"""What is free and who holds it: nodes, pods, claims, devices, pools and namespaces.

START HERE: `books.py` (the numbers of nodes). `devices.py` and its neighbours have those of devices, claims
and namespaces; `top.py` makes reports of them.
"""

from plimsoll.tools.top.books import BookRow, Holder, NodeBook, holders, node_books, text_of

__all__ = ["BookRow", "Holder", "NodeBook", "holders", "node_books", "text_of"]
