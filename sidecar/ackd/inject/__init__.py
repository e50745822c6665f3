"""Adds the sidecar to pods: one pure function decides, everything else serves that function."""
