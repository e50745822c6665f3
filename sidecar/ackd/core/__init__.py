"""The pure core: decides what happens to a message; it never waits, reads a clock or does I/O.

Time comes in as integer milliseconds (microseconds where a name ends in `_us`), decisions go out as
values. The engine and the stores perform them.
"""
