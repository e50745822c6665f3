"""Publishing for applications: producers, idempotency keys, the outbox."""
