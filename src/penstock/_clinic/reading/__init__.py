"""What source files mean, as far as rules ask: names, values, classes, loaders. Reads syntax, runs nothing.

    module    one file: what is where, imports, bindings
    values    what an expression may stand for, across assignments, parameters, returns and files
    program   all files: datasets, loaders, who gets which, the start method in force
    patterns  small questions about syntax

Knows little and says so: what cannot be told is None, and rules stay silent.
"""
