"""Results of latency measurements, and their reports: tables, a page, RESULTS.md, targets, and comparisons of runs.

Takes: rows of a measurement, or the JSON of one. Gives: tables, one HTML file, RESULTS.md and the table of
README.md, and rows that became slower. Promises: the same result gives the same page, and names in it are never markup.
Imports: nothing of the other folders.
"""
