"""What ackd tells about itself: log lines and metrics."""
