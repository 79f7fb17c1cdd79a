"""Which pods a node takes, what they are given, and who has to make room.

`admit` keeps the node's own books; `allocation` is what a pod was given; `preemption` chooses who has to go
for a critical pod; `resize` judges and plans changes of running pods, `resizing` puts them on the books.
"""
