"""The store's half: a partition's record, and what each operation does to it."""
