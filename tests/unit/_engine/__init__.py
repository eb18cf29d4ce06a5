"""Mirrors src/penstock/_engine."""
