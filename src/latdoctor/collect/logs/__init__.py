"""Driver and application logs."""
