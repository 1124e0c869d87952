"""Thirty clients with two digits each, some of them seldom there: a Flower app with FedAVOT."""
