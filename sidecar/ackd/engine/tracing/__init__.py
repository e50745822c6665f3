"""Spans of a message's way, written beside the work and never in front of it."""
