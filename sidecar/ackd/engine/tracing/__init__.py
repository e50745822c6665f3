"""Decides which spans a reply of the store is worth, and writes them beside the work.

It asks `base` and `partition`, and tells no room. No room knows it: `Subscription` connects what
other parts tell to an observer, which does nothing while traces are off.
"""
