"""A view of running sidecars: asking, adding up, and showing it as text or in a terminal."""
