"""One owned partition: decides when what its ledger wants goes to the store, and in which call.

It asks `base` alone. Every reply of the store goes to its observers in a fixed order (spans,
deduplication, its own ledger, claims), then every effect of the ledger to the part that does it.
"""
