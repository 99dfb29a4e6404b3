"""The latency harness: ``trtnode bench networks`` and ``trtnode bench model``."""
