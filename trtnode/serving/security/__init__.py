"""Certificates, tokens and rights.

Takes: the files that server.tls and server.auth name.
Gives: credentials of the ports, and decisions about calls.
Promises: a file that can't be used leaves the one before it in use; secrets are never quoted.
Imports: schema, telemetry.
"""
