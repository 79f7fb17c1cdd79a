"""The search for devices: the walk, the state it changes, and what tells early that a way leads nowhere."""
