"""A Flower app with FedAVOT: thirty clients with two digits each, some rarely available."""
