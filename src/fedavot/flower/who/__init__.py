"""Client identity: client names, and the nodes that are admitted."""
