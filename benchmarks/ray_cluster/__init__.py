"""Models on a real Ray cluster, of several raylets on this machine: what is lost when parts die, and what it costs.

Takes: Ray, from the environment of ``make test-ray``; free ports on this machine.
Gives: ``python -m benchmarks.ray_cluster losses|latency|hops|ways|throughput``, a table each.
Promises: everything that it starts has ended when it ends.
Imports: load, networks, serving.
"""
