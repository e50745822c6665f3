"""From a ready message to a leased one: waiters, rates, windows, deadlines."""
