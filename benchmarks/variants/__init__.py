"""A server with three variants of a model under rising and falling load, as a chart of latency over time.

Takes: nothing; the variants are networks of random weights, and their qualities stand in for accuracies.
Gives: a chart (SVG), and how many requests were late with and without steps.
Promises: latency counts from the moment at which a request was due.
Imports: load, networks.
"""
