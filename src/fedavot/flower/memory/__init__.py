"""Memory: the steady rule in Flower, with memories on the server or on the clients."""
