"""The sections of servable.yaml.

Takes: YAML text, and the environment that it names.
Gives: pydantic models, a tree that knows its lines, and a JSON schema.
Promises: every unknown key is refused; every path is absolute.
Imports: none.
"""
