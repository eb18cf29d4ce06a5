"""Bounded, measured runs of somebody else's program."""
