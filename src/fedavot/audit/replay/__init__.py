"""Training on the log: how every rule would have performed on its rounds, in their order."""
