"""Email: one confirmation per order."""
