"""Threads that answer requests, and their CPU cores.

Takes: the number of instances, and which cores the ports keep to.
Gives: pools that run the steps of requests, and a wrapper that moves threads between cores.
Promises: no pool runs more at a time than it may; a request that waits holds no thread.
Imports: none.
"""
