"""One file per command of `ackd`, with the command's name."""
