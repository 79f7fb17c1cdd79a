"""Parts shared by the controllers that own pods: ownership, states, templates, and writes of pods."""
