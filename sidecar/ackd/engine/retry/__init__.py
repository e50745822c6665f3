"""Decides how a message leaves for the retry or dead-letter topic, and when its copy may go on.

It asks `base` and `partition`. Effects of a ledger reach it through the partition, and what a move
or a claim changed goes back to the ledger; `own_topic` tells `ownership` that the rules changed.
"""
