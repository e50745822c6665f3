"""The engine: performs what the core decides, against a store, a broker and a clock."""
