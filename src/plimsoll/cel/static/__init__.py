"""What is known before any device is seen: types, overloads, hopeless literals, the worst-case cost."""
