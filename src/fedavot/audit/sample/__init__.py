"""A synthetic federation to try an audit on."""
