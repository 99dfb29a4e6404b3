"""Shows reports and progress of commands on a terminal.

Takes: reports of compilations, and the progress of long work.
Gives: a verdict and tables on stdout, bars on stderr.
Promises: lines fit the terminal, those on a pipe are not broken, and no reason is cut.
Imports: pages.
"""
