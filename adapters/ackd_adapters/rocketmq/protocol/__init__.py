"""RocketMQ's messages, generated from the published descriptors (`hatch_build.py`)."""
