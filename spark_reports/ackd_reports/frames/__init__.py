"""What runs on Spark: reading, merging, counting. Functions that Spark 3.5 has, and no Python
workers.
"""
