"""From the evidence to one recommendation."""
