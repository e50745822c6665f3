"""The sidecars of one subscription: heartbeats, membership, shares, what they must agree on."""
