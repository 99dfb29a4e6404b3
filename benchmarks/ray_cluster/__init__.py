"""A Ray cluster of several raylets on this machine, and clients that count what is lost when parts of it die.

Takes: Ray, from the environment of ``make test-ray``; free ports on this machine.
Gives: the parts of the tests of Ray.
Promises: everything that it starts has ended when it ends.
"""
