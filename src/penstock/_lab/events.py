"""What the processes of a patient report: one JSON object a line, appended to the trial's log.

    inside (observer) ── one write(2) a line, O_APPEND ──▶ log ── `assemble` ──▶ Trial

Each line has "kind", "pid", "at" (seconds of CLOCK_MONOTONIC, one clock for all processes of a machine) and:

| kind | when | further fields |
|---|---|---|
| process | the observer begins in a process | parent, argv, rank (or null), python, start_method (of a child of multiprocessing), is_spawned (by multiprocessing, its trackers too) |
| torch | torch.utils.data was imported | version, default_start_method, has_cuda, cpus |
| loader | a DataLoader was made, and again when it is used for the first time | LoaderSeen's fields; lengths and things only when used |
| iter | iter(loader) begins | loader, number, threads, native_threads, live, changed, used |
| started | iter(loader) returned | loader, number, workers (pids) |
| next | the consumer begins to wait for a batch (the first 200 of a loader, then at most one every 50 ms) | loader, number, batch |
| batch | a batch was handed over (as often as "next") | loader, number, batch, wait, step, tensors, nbytes, pickled, kept (but for this one and the one before), samples (since the last such event) |
| ended | an iterator's end | loader, number, end, batches, samples (of the whole pass), shutdown |
| sample | the dataset gave a sample (first ones, then some) | SampleSeen's fields |
| taking | a worker begins a sample (only the newest counts) | loader, worker, index |
| fetch | a batch was made in a worker or in the consumer | FetchSeen's fields; began_s is on the clock of "at" |
| failed | an exception | Failure's fields, and note: which sample does not fit and why, or what cannot be pickled |
| things | what hangs on the dataset, again, after some samples | loader, things (those that have news: offset_moved, caches) |
| news | a persistent worker begins a later pass | loader, number, worker, changed (attributes of its copy of the dataset, since its first pass) |
| dataset | our own loop has been through a loader without workers | loader, reach, past, mutated, drifts, part, part_length |
| worker | a worker process begins / ends by itself | loader, number, worker, event ("begins", "ends") |
| died | a parent saw a worker's exit | loader, number, worker, child, status |
| segment | a named segment of shared memory was made | name |
| warned | a warning was shown, in any process | text, category |
| mend | a repair that the plan asks for was made, or could not be | name, done, why |
| enough | the observer has seen what the plan asks for: end the trial | why |
| program | the script itself ended | how ("returned", "raised", "driven": by the observer's own loop), status (null: not known inside), lost (what went wrong in the observer) |

`taking` is not written to the log but into a small page of each process beside it (`_lab/inside/page.py` reads them),
so that a look at a stuck process can name its sample at no cost. Times in events that say how long ("wait", "step")
are in seconds. A line that cannot be parsed (a process died while it wrote) is left out.
"""

# ruff: noqa: E501 - the table reads better whole
