"""Mirrors src/penstock/_base."""
