"""Proof by violence: clients that write down all they do, faults, and a judge who reads the notes.

Nothing in here looks inside ackd: clients speak HTTP, faults are signals to processes that this
package started itself, and the verdict comes from the clients' histories alone. So the same run
works against a laptop and against any deployment. `checker` is pure; the rest does the I/O.
"""
