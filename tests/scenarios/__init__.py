"""Stories: given some objects, when something happens, then these numbers."""
