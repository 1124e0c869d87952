"""The rivals of `fedavot reproduce rivals`, tuned again on fewer seeds."""
