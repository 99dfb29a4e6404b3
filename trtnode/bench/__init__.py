"""The latency harness of ``trtnode bench``: models natively against compiled, and load on any server."""
