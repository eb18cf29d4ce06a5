"""What runs inside the examined program: the observer.

    site/sitecustomize ─▶ boot ─┬─ hook       waits until the program itself imports torch
    (first on PYTHONPATH)       ├─ endings    uncaught exception, warnings, end of the program
                                └─ observer ─┬─ loaders   DataLoader.__init__: where made, which settings
                                             ├─ passes    iter() and next(): waits, steps, ends
                                             ├─ workers   the worker's loop, and its feeder thread
                                             ├─ fetches   each batch as it is made, sample by sample
                                             ├─ drive     our own loop in place of the program's
                                             └─ mends     named repairs, for experiments

Guarantees:

* It prints nothing, raises nothing into the program, draws no random number, and starts no thread.
* torch is not imported before the program does.
* Nothing that travels between processes is replaced: what pickles without us pickles with us.
* A traceback of the program shows no line of ours: see NOTE [ No trace ] in `frames`.
* What it writes is bounded, and the time that it takes is held to a share of the program's.
"""
