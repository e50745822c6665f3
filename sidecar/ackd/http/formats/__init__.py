"""How requests and messages look in bytes."""
