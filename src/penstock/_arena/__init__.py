"""Batches across processes without copies: segments, slabs, leases and the codec.

    worker:    SlabWriter ──collate, encode──▶ slab ──Filled──▶   consumer:  Arena.lend ──decode──▶ batch
    consumer:  last tensor of the batch dies ──▶ lease released ──▶ slab free ──▶ next ticket

`segment` owns the system's shared memory, `slab` the worker's side of writing a batch, `arena` the
consumer's stock of slabs and its budget, `lease` the consumer's right to a slab, `codec` the form of a
batch in a slab, `sharing` the one copy of a dataset, `packing` large lists as one buffer.
"""
