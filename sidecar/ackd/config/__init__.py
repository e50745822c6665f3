"""Configuration: the schema of every setting, and the loader that finds every mistake."""
