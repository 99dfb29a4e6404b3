"""Experiments beside the product: peers, attacks, soak, the cut, and the overhead of each request."""
