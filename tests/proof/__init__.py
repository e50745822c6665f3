"""The model of the protocol in `proofs/`, and TLC, which checks it."""
