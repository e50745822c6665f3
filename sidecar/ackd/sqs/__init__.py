"""A port for unmodified SQS clients, with the same leases (`docs/guides/sqs.md`)."""
