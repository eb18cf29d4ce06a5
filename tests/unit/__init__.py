"""Each module of `src/penstock` alone: no process, no sleep, a few milliseconds a test."""
