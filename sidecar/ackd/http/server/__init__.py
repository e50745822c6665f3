"""Connections, limits, rights and routing."""
