"""Serves models over gRPC and HTTP, and the ``trtnode`` program."""
