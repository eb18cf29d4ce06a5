"""Mirrors src/penstock/_engine/backends."""
