"""Decides the answer to each settle of any lease, whichever sidecar granted it.

It asks `base` and `partition`. The owner of the partition learns of
a settle from its own reply or from the record's journal; `delivery` reads the progress notes.
"""
