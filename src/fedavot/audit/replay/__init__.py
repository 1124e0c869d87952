"""Training on the log: what every rule would have made of its rounds, in their order."""
