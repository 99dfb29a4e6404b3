"""What commands show on a terminal.

Takes: reports of compilations, and the progress of long work.
Gives: a verdict and tables on stdout, bars on stderr.
Promises: lines fit 80 columns, and no reason is cut.
Imports: pages.
"""
