"""The value of a reply: its checks, and the weight of its client."""
