"""The explain page and the status page.

Takes: partitions with their reports, and counts of models.
Gives: HTML that needs nothing from elsewhere.
Promises: nothing of a model can run as a script.
Imports: models, security, service, telemetry.
"""
