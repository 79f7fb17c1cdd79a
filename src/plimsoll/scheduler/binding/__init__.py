"""Writing a placement down and taking it back (`bind`), what pods are told (`conditions`), devices that must
be ready first (`readiness`), and what a restart finds half done (`recovery`)."""
