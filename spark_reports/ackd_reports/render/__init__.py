"""The forms of a report: HTML for people, JSON, CSV, JUnit XML and Prometheus text for machines."""
