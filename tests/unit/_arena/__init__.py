"""Mirrors src/penstock/_arena."""
