"""The command `ackd`: serve, check, demo, torture, and what prints documents."""
