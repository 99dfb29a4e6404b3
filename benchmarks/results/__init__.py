"""The published figures: RESULTS.md and the README's table, written from a run of ``trtnode bench networks``.

Takes: the JSON of a run. Gives: both texts, and which targets the run meets. Promises: a run that isn't complete
changes no file. Imports: nothing of the other folders.
"""
