"""What a reply is worth: its checks, and the weight of its client."""
