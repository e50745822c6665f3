"""Tests of ackd, one folder for each kind; `tests.support` holds the real servers they run on."""
