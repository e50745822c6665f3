"""An S3 server of one process, and what Spark needs to reach it."""
