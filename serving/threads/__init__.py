"""Threads that answer requests, and their CPU cores.

Takes: the number of instances, and which cores the ports keep to.
Gives: pools that run calls, and a wrapper that moves threads between cores.
Promises: no pool runs more calls at a time than it may; a client that sends slowly holds no place.
Imports: none.
"""
