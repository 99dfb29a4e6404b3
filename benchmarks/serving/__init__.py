"""How fast the server is: beside the least that a gRPC server can do in Python, and beside other servers."""
