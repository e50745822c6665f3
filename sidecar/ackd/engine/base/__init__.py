"""What every part of the engine is given: the state of a subscription, its signals, its tasks.

It decides nothing and asks no other room. Rooms report to each other by its signals, which
`subscription.py` connects, and to streams and push by `LeaseEvents`.
"""
