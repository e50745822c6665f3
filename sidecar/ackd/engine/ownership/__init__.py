"""Taking, recovering, committing and letting go of partitions."""
