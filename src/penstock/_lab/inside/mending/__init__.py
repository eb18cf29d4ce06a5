"""The repairs themselves, by what they repair; `penstock._lab.inside.mends` has the list."""
