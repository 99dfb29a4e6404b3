"""Measures latency: a model natively against compiled, and the price of everything between a caller and an engine."""
