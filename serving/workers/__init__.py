"""A server of several processes: workers that share the gRPC port, and the supervisor that keeps them."""
