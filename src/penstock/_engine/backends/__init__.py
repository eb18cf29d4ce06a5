"""Where workers live: processes forked from a zygote, threads, or the consumer itself.

`choice` decides which; `process`, `thread` and `inline` are the three; `zygote` is the process that
worker processes come from, `birth` its two ways into the world, `ship` how a dataset reaches a clean one.
"""
