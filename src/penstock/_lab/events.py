"""What the processes of a patient report: one JSON object a line, appended to the trial's log.

    inside (observer) ── one write(2) a line, O_APPEND ──▶ log ── `assemble` ──▶ Trial

Each line has "kind", "pid", "at" (seconds of CLOCK_MONOTONIC, one clock for all processes of a machine) and:

| kind | when | further fields |
|---|---|---|
| process | the observer begins in a process | parent, argv, rank (or null), python, start_method (of a child), is_spawned |
| torch | torch.utils.data was imported | version, default_start_method, has_cuda, cpus |
| loader | a DataLoader was made, or is used for the first time | LoaderSeen's fields |
| iter | iter(loader) begins | loader, number, threads, native_threads, live |
| started | iter(loader) returned | loader, number, workers (pids) |
| next | the consumer begins to wait for a batch (first ones, and then at most one every 50 ms) | loader, number, batch |
| batch | a batch was handed over | loader, number, batch, wait, step, tensors, nbytes, pickled, kept, samples |
| ended | an iterator's end | loader, number, end, batches, shutdown |
| sample | the dataset gave a sample | SampleSeen's fields |
| taking | a worker begins a sample (only the newest counts) | loader, worker, index |
| fetch | a batch was made in a worker or in the consumer | FetchSeen's fields |
| failed | an exception | Failure's fields |
| dataset | our own loop has been through a loader without workers | loader, reach, past, mutated |
| things | what hangs on the dataset, again, after some samples | loader, things |
| worker | a worker process begins / ends by itself | loader, number, worker, event ("begins", "ends") |
| died | a parent saw a worker's exit | loader, worker, child, status |
| warned | warnings.warn in any process | text, category |
| enough | the observer has seen what the plan asks for: end the trial | why |
| program | the script itself ended | how ("returned", "raised", "exit"), status |

`taking` is not written to the log but into a small shared page (`_lab/inside/page.py`), one slot for each process,
so that a look at a stuck process can name its sample at no cost. Times in events that say how long ("wait", "step")
are in seconds. A line that cannot be parsed (a process died while it wrote) is left out.
"""

# ruff: noqa: E501 - the table reads better whole
