"""Per code: where a rule fires, and where it stays silent."""
