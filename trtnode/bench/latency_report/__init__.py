"""Results of latency measurements, and their reports: tables, a page, and comparisons of runs.

Takes: rows of a measurement, or the JSON of one. Gives: tables, one HTML file, and rows that became slower. Promises:
the same result gives the same page, and names in it are never markup.
Imports: nothing of the other folders.
"""
