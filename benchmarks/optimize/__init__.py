"""Time that equal rewrites of graphs save, measured in portions.

Takes networks, models of a folder and operators; gives their speed with rewrites and without. Models are prepared in a
folder, so that a timing can be repeated, and stopped and continued, without compiling anything again.
"""
