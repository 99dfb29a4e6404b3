"""The ``trtnode`` program.

Takes: command-line arguments.
Gives: an exit code.
Promises: help needs no library; each command imports its own when it runs.
Imports: cli/terminal, pages, telemetry, threads.
"""
