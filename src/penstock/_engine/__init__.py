"""From sampler to batch: tickets out, filled slabs home.

                consumer process                             worker processes (or threads)
     ┌────────────────────────────────────────┐          ┌──────────────────────────────┐
     │ sampler ─▶ scheduler ─▶ backend channel ┼─Assign──▶│ worker ─▶ fetch ─▶ encode    │
     │             (ledger)                    │          │                     │        │
     │ batch ◀─ decode ◀─ arena ◀─ runtime ◀───┼─Filled───┼──────── slab ◀──────┘        │
     └────────────────────────────────────────┘          └──────────────────────────────┘

`scheduler` and `ledger` decide and are pure. `runtime` carries events to them and commands from them.
`backends` is where workers live; `shutdown` is the one order in which everything closes.
"""
