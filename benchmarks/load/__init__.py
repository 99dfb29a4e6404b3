"""Load on a KServe V2 server, and what it does to the latency: ``trtnode bench server``."""
