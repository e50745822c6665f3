"""`make campaign HOURS=n`: random worlds on real parts, each with kills and a verdict.

A world is drawn from a number: a broker, sidecars, a store, what settles wait for, a load, faults.
The same number draws the same world; what its faults meet is up to the machine.
"""
