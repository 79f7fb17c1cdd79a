"""How fast the scheduler is: by itself, over HTTP, and how far that is from what the API server can take."""
