"""What ackd reports about itself: log lines, metrics and traces."""
