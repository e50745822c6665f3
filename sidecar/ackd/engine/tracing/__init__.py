"""Decides which spans a reply of the store is worth, and writes them beside the work.

It asks `base` and `partition`. It observes replies and tells no room, so a message never waits for
it; `operations` reports redrives and seeks to it.
"""
