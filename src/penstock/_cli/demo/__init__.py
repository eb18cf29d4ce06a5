"""The six examples of two well-known answers about `num_workers`, tried: what `penstock demo` shows.

    programs ──▶ examples (claim, ways to run, judge) ──▶ stage (really run, bounded) ──▶ showing

Nothing is written down beforehand: whether a claim holds is judged from what the runs did on this machine.
"""
