"""All questions together: on what a real cluster held, and on whatever people or accidents hand in."""
