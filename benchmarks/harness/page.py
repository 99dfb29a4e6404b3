"""Page."""

from benchmarks.harness.results import Result


def render_page(result: Result) -> str:
    """Page."""
    return str(result)
