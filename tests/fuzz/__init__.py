"""Coverage-guided fuzzing of what reads foreign bytes.

`python -m tests.fuzz TARGET --seconds n` is `make fuzz`; a module of the same name has each target:
`run` reads one input and raises what it should not, `seeds` are good inputs, which the fuzzer
changes. `corpus/TARGET` keeps inputs that reach more; every test run reads all of them.
"""

TARGETS = (
    "cloud_events",
    "commit_metadata",
    "http_bodies",
    "http_heads",
    "lease_tokens",
    "peer_frames",
    "sqs_forms",
    "store_codec",
    "trace_targets",
)
