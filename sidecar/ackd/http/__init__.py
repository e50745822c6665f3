"""The HTTP side of ackd: two ports, one table of routes, nothing that decides about messages."""
