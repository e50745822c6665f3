"""The stores: Redis or Valkey (embedded or external) and memory, one contract."""
