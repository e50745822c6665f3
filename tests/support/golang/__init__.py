"""Programs that Go builds for tests.

Nothing is imported here: what builds them runs before there is a virtual environment.
"""
