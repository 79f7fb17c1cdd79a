"""Why there are no devices: the values of a refusal, how they are found out, and their words."""
