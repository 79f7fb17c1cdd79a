"""Where objects live: files and dumps today; the API server and its clients join them here."""
