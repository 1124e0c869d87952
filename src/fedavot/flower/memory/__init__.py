"""Memory: the steady rule in Flower. The server remembers; clients may correct their drift."""
