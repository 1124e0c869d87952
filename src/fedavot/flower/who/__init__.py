"""Who is who: client names, and the nodes that are admitted."""
